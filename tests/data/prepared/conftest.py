"""What the tests of prepared records share."""

import os

import pytest

from tune_tf.data import preparation_counts, prepared
from tune_tf.data.prepare.prepare_actor import PreparationCounts


@pytest.fixture
def counted():
    """Return what was asked and run since the start of a test."""
    before = preparation_counts()

    def since():
        now = preparation_counts()
        return PreparationCounts(now.num_asked - before.num_asked, now.num_run - before.num_run)

    return since


@pytest.fixture
def askers():
    """Four processes that ask for data."""
    import ray

    @ray.remote(num_cpus=0)
    class Asker:
        def ask(self, records, fn, **arguments):
            found = prepared(records, fn, **arguments)
            return found.rows, os.getpid()

        def pid(self):
            return os.getpid()

    made = [Asker.remote() for _ in range(4)]
    yield made
    for asker in made:
        ray.kill(asker)
