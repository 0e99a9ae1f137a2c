"""What the tests of checkpoints share."""

import functools

import pytest
from checkpointed_trials import saved_after


@pytest.fixture(scope="module")
def folders(replicas_of, tmp_path_factory):
    """Return a function from a number of replicas to their checkpoint after two epochs."""

    @functools.cache
    def folder(num):
        made = tmp_path_factory.mktemp(f"replicas{num}")
        saved_after(2, replicas_of(num), made)
        return made

    return folder
