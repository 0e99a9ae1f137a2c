"""Replicas for the tests of what runs inside a trial: one process, six logical CPUs."""

import pytest


@pytest.fixture(scope="session")
def replicas_of():
    """Return a function from a number of replicas, 1 to 3, to the ``Replicas`` that share it."""
    from tune_tf.training.devices import Devices
    from tune_tf.training.replicas.replicas import Replicas

    made = {}

    def replicas(num):
        if num not in made:
            made[num] = Replicas(Devices(tuple(f"CPU:{i}" for i in range(num))))
        return made[num]

    return replicas


@pytest.fixture(scope="session")
def loop_on_grid(replicas_of):
    """Return a function to make a loop on so many replicas, stages and micro-batches."""
    from tune_tf.parallelism import Hybrid
    from tune_tf.training.devices import Devices
    from tune_tf.training.stages.stage_builder import StageDevices, stage_loop

    def loop(workload, num_replicas, num_stages, micro_batches):
        devices = Devices(tuple(f"CPU:{i}" for i in range(num_replicas * num_stages)))
        spread = Hybrid(num_replicas, num_stages, micro_batches)
        return stage_loop(StageDevices(devices, num_stages), spread)

    return loop
