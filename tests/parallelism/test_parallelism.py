"""Settings of each kind of parallelism, and the resources that it needs."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import (
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
)
from tune_tf.resources import TrialResources


def test_all_errors_of_a_kind_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="micro_batches") as caught:
        Mirrored(0, synchronized_batch_norm="yes", micro_batches=True)

    assert list(map(str, caught.value.details)) == [
        "num_replicas: must be at least 1, not 0",
        "synchronized_batch_norm: must be true or false, not 'yes': write it without quotes",
        "micro_batches: must be an integer, not True",
    ]


BAD_SETTINGS = {
    "num_replicas: must be an integer, not nothing": lambda: Mirrored(None),
    "num_replicas: must be .* not 1.0": lambda: Mirrored(1.0),
    "num_workers: must be.* at least 2, not 1": lambda: MultiWorker(1),
    "num_stages: must be .* not 0": lambda: ModelParallel(0),
    "num_stages: must be .* not -1": lambda: Hybrid(2, -1),
    "num_folds: must be.* at least 2, not 1": lambda: Folds(1),
    r"number of folds \(3\), not 4": lambda: Folds(3, num_devices=4),
    r"number of members \(2\), not 3": lambda: Ensemble(2, num_devices=3),
    "max_staleness: must be.* at least 1, not 0": lambda: Asynchronous(max_staleness=0),
}


@pytest.mark.parametrize(("match", "make"), BAD_SETTINGS.items(), ids=BAD_SETTINGS.keys())
def test_bad_settings_are_refused(match, make):
    with pytest.raises(InvalidSettingsError, match=match):
        make()


DEVICES = {
    Mirrored(2): 2,
    MultiWorker(3): 3,
    ModelParallel(3): 3,
    Hybrid(2, 3): 6,
    Asynchronous(2): 2,
    Folds(5, num_devices=2): 2,
    Ensemble(3): 1,
}


@pytest.mark.parametrize(
    ("parallelism", "num"), DEVICES.items(), ids=lambda it: getattr(it, "kind", it)
)
def test_a_trial_reserves_a_cpu_or_a_gpu_for_each_device(parallelism, num):
    on_gpus = parallelism.resources(gpus_in_cluster=True)

    assert on_gpus == TrialResources(cpus=num, gpus=num)
    assert parallelism.resources(gpus_in_cluster=False) == TrialResources(cpus=num)
    parallelism.check(on_gpus)
    parallelism.check(TrialResources(num))


USABLE = [
    (Mirrored(), TrialResources(1, 0.5)),
    (Mirrored(2), TrialResources(1, 2)),
    (Mirrored(2), TrialResources(3)),
    (Folds(num_devices=2), TrialResources(2, 0.5)),
    (Asynchronous(2), TrialResources(4, 1)),
]


@pytest.mark.parametrize(("parallelism", "resources"), USABLE)
def test_usable_resources_pass(parallelism, resources):
    parallelism.check(resources)


UNUSABLE = [
    (Mirrored(2), TrialResources(1), "cpus is 1 but the trial has 2 replicas: .* multiple of 2"),
    (Mirrored(2), TrialResources(2, 1), "gpus is 1 but the trial has 2 replicas.* reserve 2"),
    (Mirrored(2), TrialResources(2, 0.5), "gpus is 0.5 but .* exactly one GPU each"),
    (Mirrored(1), TrialResources(1, 2), "gpus is 2 but the trial has 1 replica"),
    (MultiWorker(2), TrialResources(3), "cpus is 3 but the trial has 2 workers"),
    (MultiWorker(2), TrialResources(2, 0.5), "gpus is 0.5 but"),
    (MultiWorker(2), TrialResources(3, 4), "(?s)cpus is 3 .*gpus is 4"),
    (Hybrid(2, 2), TrialResources(3), "cpus is 3 but the trial has 2 replicas of 2 stages"),
    (Hybrid(2, 2), TrialResources(4, 2), "gpus is 2 .* reserve 4"),
    (Folds(num_devices=2), TrialResources(3), "cpus is 3 but the trial has 2 devices"),
    (Folds(num_devices=2), TrialResources(2, 3), "gpus is 3 but the trial has 2 devices"),
    (Asynchronous(2), TrialResources(3), "cpus is 3 but the trial has 2 asynchronous workers"),
    (Asynchronous(2), TrialResources(2, 4), "gpus is 4 but"),
]


@pytest.mark.parametrize(("parallelism", "resources", "match"), UNUSABLE)
def test_resources_that_do_not_fit_are_refused(parallelism, resources, match):
    with pytest.raises(InvalidSettingsError, match=match):
        parallelism.check(resources)


@pytest.mark.parametrize("parallelism", DEVICES, ids=lambda it: it.kind)
def test_each_process_has_an_equal_share_of_devices_and_all_custom_resources(parallelism):
    num = parallelism.num_workers
    resources = TrialResources(12, 6, "H100", {"fast_disk": 1})

    share = TrialResources(12 // num, 6 / num, "H100", {"fast_disk": 1})
    assert parallelism.shares(resources) == (share,) * num


def test_repeats_are_subtasks_of_their_own():
    assert Folds(5, num_repeats=2, num_devices=10).num_subtasks == 10


SCALED = [
    (Mirrored(2, micro_batches=3), 4, Mirrored(4, micro_batches=3)),
    (MultiWorker(2), 3, MultiWorker(3)),
    (ModelParallel(3), 2, Hybrid(2, 3)),
    (ModelParallel(3), 1, ModelParallel(3)),
    (Hybrid(2, 3), 4, Hybrid(4, 3)),
    (Asynchronous(2), 4, None),
]


@pytest.mark.parametrize(("parallelism", "num_replicas", "scaled"), SCALED)
def test_a_kind_knows_its_layout_with_another_number_of_replicas(parallelism, num_replicas, scaled):
    assert parallelism.scaled_to(num_replicas) == scaled
