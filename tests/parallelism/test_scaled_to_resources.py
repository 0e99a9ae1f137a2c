"""How many replicas a trial has that was given more devices."""

import pytest

from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources


@pytest.mark.parametrize(
    ("declared", "base", "reserved", "num_replicas"),
    [
        pytest.param(1, (1, 0), (1, 0), 1, id="no more"),
        pytest.param(1, (1, 0), (4, 0), 4, id="cpus"),
        pytest.param(2, (2, 0), (6, 0), 6, id="cpus of two replicas"),
        pytest.param(2, (6, 0), (12, 0), 4, id="each keeps its three cpus"),
        pytest.param(1, (2, 0), (5, 0), 2, id="rounded down"),
        pytest.param(1, (2, 0), (3, 0), 1, id="no whole multiple"),
        pytest.param(2, (4, 0), (3, 0), 2, id="fewer cpus"),
        pytest.param(1, (1, 1), (1, 3), 3, id="gpus"),
        pytest.param(2, (2, 2), (2, 5), 5, id="gpus of two replicas"),
        pytest.param(2, (8, 2), (32, 2), 2, id="cpus beside gpus"),
        pytest.param(1, (1, 0.5), (1, 0.5), 1, id="a share of a gpu"),
        pytest.param(1, (1, 0.5), (1, 1), 1, id="a share grows to a card"),
        pytest.param(1, (1, 0.5), (1, 2), 2, id="a share grows to two cards"),
    ],
)
def test_a_replica_takes_a_gpu_or_as_many_cpus_as_at_first(declared, base, reserved, num_replicas):
    spread = Mirrored(declared).scaled_to_resources(
        TrialResources(*base), TrialResources(*reserved), batch_size=64
    )

    assert spread.num_replicas == num_replicas


@pytest.mark.parametrize(
    ("settings", "batch_size", "num_replicas"),
    [
        pytest.param({}, 5, 5, id="rows of a batch"),
        pytest.param({}, 8, 8, id="as many rows as devices"),
        pytest.param({"num_replicas": 2}, 1, 2, id="never fewer than declared"),
    ],
)
def test_there_are_no_more_replicas_than_batches_and_settings_allow(
    settings, batch_size, num_replicas
):
    declared = Mirrored(**settings)
    base = TrialResources(cpus=declared.num_replicas)

    spread = declared.scaled_to_resources(base, TrialResources(cpus=8), batch_size=batch_size)

    assert spread.num_replicas == num_replicas


@pytest.mark.parametrize(
    ("declared", "synchronized"), [pytest.param(1, True, id="one"), pytest.param(2, False, id="2")]
)
def test_scaling_from_one_device_synchronizes_batch_normalization(declared, synchronized):
    base, reserved = TrialResources(cpus=declared), TrialResources(cpus=4)
    spread = Mirrored(declared).scaled_to_resources(base, reserved, batch_size=8)

    assert spread.synchronized_batch_norm is synchronized


def test_scaling_to_resources_keeps_other_settings():
    declared = Mirrored(2, synchronized_batch_norm=True, micro_batches=2)
    spread = declared.scaled_to_resources(TrialResources(2), TrialResources(4), batch_size=8)

    assert spread == Mirrored(4, synchronized_batch_norm=True, micro_batches=2)
