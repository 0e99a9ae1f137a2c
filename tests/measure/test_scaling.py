"""What is compared to see how a workload scales, and the advice that follows."""

import pytest

from tune_tf.measure.scaling import ScalingRow, advice, candidates
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.resources import TrialResources


def measured(declared=Mirrored(), cpus=1, *, most, on_gpus=False):  # noqa: B008  frozen
    resources = TrialResources(cpus, declared.num_devices if on_gpus else 0)
    return candidates(declared, resources, most, on_gpus=on_gpus)


def test_replicas_on_more_devices_and_other_batches_are_compared():
    found = measured(most=6)
    assert [each.what for each in found] == [
        "1 replica",
        *("1 replica, 2 cores", "2 replicas", "1 replica, 4 cores", "4 replicas"),
        *("1 replica, 6 cores", "6 replicas"),
        *("batch x 0.5", "batch x 2", "batch x 4"),
    ]
    for each in found:
        each.parallelism.check(each.resources)


def test_replicas_on_gpus_keep_their_cores_and_the_declared_kind_is_compared():
    declared = MultiWorker(2, synchronized_batch_norm=True)
    found = {each.what: each for each in measured(declared, cpus=8, most=2, on_gpus=True)}
    assert found["2 replicas"].resources == TrialResources(8, 2)
    assert found["2 replicas"].parallelism == Mirrored(2, synchronized_batch_norm=True)
    assert found["1 replica"].resources == TrialResources(4, 1)
    assert found["multi worker: 2 workers"].parallelism == declared


def row(what, speed_up, devices=1, batch_size=32):
    return ScalingRow(what, devices, batch_size, 10 * speed_up, speed_up, speed_up / devices, None)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (
            [row("2 replicas", 1.9, 2), row("1 replica, 2 cores", 1.5, 2)],
            "Give a trial 2 replicas: 1.90 times the rows a second of one core, "
            "95% of 2 single ones.",
        ),
        (
            [row("2 replicas", 1.2, 2), row("batch x 4", 3.0, batch_size=128)],
            "Give a trial one core, and run as many at once as there are cores.",
        ),
        (
            [row("batch x 0.5", 1.2, batch_size=16)],
            "Give a trial one core, and run as many at once as there are cores.",
        ),
    ],
    ids=["pays", "wastes devices", "one device"],
)
def test_the_advice_is_more_devices_only_where_they_pay(others, text):
    assert advice([row("1 replica", 1.0), *others], "core") == text
