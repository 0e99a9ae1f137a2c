"""Replicas for the tests of what runs inside a trial: one process, three logical CPUs."""

import pytest


@pytest.fixture(scope="session")
def replicas_of():
    """Return a function from a number of replicas, 1 to 3, to the ``Replicas`` that share it."""
    from tune_tf.training.devices import Devices
    from tune_tf.training.replicas import Replicas

    made = {}

    def replicas(num):
        if num not in made:
            made[num] = Replicas(Devices(tuple(f"CPU:{i}" for i in range(num))))
        return made[num]

    return replicas


def pytest_ignore_collect(collection_path, config):
    """Leave these files alone where no TensorFlow is wanted: reading them imports it."""
    return True if "not tf" in config.option.markexpr else None
