"""Mirrored: replicas on the devices of one node."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources


@pytest.mark.parametrize("num_replicas", [0, -1, 1.0, "2", True, None], ids=repr)
def test_bad_numbers_of_replicas_are_refused(num_replicas):
    with pytest.raises(InvalidSettingsError, match="num_replicas must be a whole number"):
        Mirrored(num_replicas)


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="uneven") as caught:
        Mirrored(0, synchronized_batch_norm="yes", micro_batches=0, uneven="pad")

    assert [fault.what for fault in caught.value.faults] == [
        "num_replicas must be a whole number of at least 1, not 0",
        "micro_batches must be a whole number of at least 1, not 0",
        "synchronized_batch_norm must be true or false, not 'yes'",
        "uneven must be one of 'split', 'refuse', not 'pad'",
    ]


@pytest.mark.parametrize(
    ("gpus_in_cluster", "resources"),
    [
        pytest.param(True, TrialResources(cpus=2, gpus=2), id="gpus"),
        pytest.param(False, TrialResources(cpus=2), id="cpus"),
    ],
)
def test_each_replica_reserves_a_device(gpus_in_cluster, resources):
    assert Mirrored(2).resources(gpus_in_cluster=gpus_in_cluster) == resources


@pytest.mark.parametrize(
    ("num_replicas", "gpus"),
    [
        pytest.param(1, 0, id="one-on-cpu"),
        pytest.param(1, 0.5, id="share"),
        pytest.param(2, 2, id="card-each"),
    ],
)
def test_usable_resources_pass(num_replicas, gpus):
    Mirrored(num_replicas).check(TrialResources(cpus=1, gpus=gpus))


def test_replicas_on_cpus_need_one_each():
    Mirrored(2).check(TrialResources(cpus=2))


@pytest.mark.parametrize(
    ("num_replicas", "gpus", "match"),
    [
        pytest.param(2, 1, "resources.gpus is 1 but .* is 2", id="too-few"),
        pytest.param(1, 2, "resources.gpus is 2 but .* is 1", id="too-many"),
        pytest.param(2, 0.5, "a share of one card", id="share-for-two"),
        pytest.param(2, 0, "resources.cpus is 1 .* a CPU of its own", id="two-on-one-cpu"),
    ],
)
def test_unusable_resources_are_refused(num_replicas, gpus, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Mirrored(num_replicas).check(TrialResources(cpus=1, gpus=gpus))
