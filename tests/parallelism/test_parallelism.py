"""How a trial is spread: replicas on one node, and in several processes."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tune_tf.config.field_types import field_schema
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import (
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
    Parallelism,
)
from tune_tf.parallelism.parallelism import Count, OptionalCount
from tune_tf.resources import TrialResources


@pytest.mark.parametrize("num_replicas", [0, -1, 1.0, "2", True, None], ids=repr)
def test_bad_numbers_of_replicas_are_refused(num_replicas):
    with pytest.raises(InvalidSettingsError, match="num_replicas must be an integer"):
        Mirrored(num_replicas)


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="uneven") as caught:
        Mirrored(0, synchronized_batch_norm="yes", micro_batches=0, uneven="pad", max_replicas=0)

    assert [fault.what for fault in caught.value.details] == [
        "num_replicas must be an integer of at least 1, not 0",
        "micro_batches must be an integer of at least 1, not 0",
        "synchronized_batch_norm must be true or false, not 'yes'",
        "uneven must be one of 'split', 'refuse', not 'pad'",
        "max_replicas must be an integer of at least 1, not 0",
    ]


def test_a_trial_cannot_grow_to_fewer_replicas_than_it_begins_with():
    with pytest.raises(InvalidSettingsError, match=r"at least num_replicas \(2\), not 1"):
        Mirrored(2, max_replicas=1)


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
        pytest.param(2, 0, "resources.cpus is 1 .* needs its own CPU", id="two-on-one-cpu"),
    ],
)
def test_unusable_resources_are_refused(num_replicas, gpus, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Mirrored(num_replicas).check(TrialResources(cpus=1, gpus=gpus))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        pytest.param({"num_workers": 1}, "at least 2, not 1: one process is kind 'mirr", id="one"),
        pytest.param({"num_workers": True}, "num_workers must be .* not True", id="bool"),
        pytest.param({"micro_batches": 0}, "micro_batches must .* not 0", id="no pieces"),
        pytest.param({"uneven": "drop"}, "uneven must be .* not 'drop'", id="unknown rule"),
        pytest.param({"replicas_per_worker": 0}, "replicas_per_worker must .* not 0", id="none"),
        pytest.param({"min_workers": 0}, "min_workers must be an integer .* not 0", id="no worker"),
        pytest.param({"min_workers": 3}, r"at most num_workers \(2\), not 3", id="more than all"),
        pytest.param({"placement": "spred"}, "did you mean 'spread'", id="placement"),
        pytest.param({"num_workers": 0, "placement": "no"}, "2 errors", id="both"),
    ],
)
def test_bad_settings_of_workers_are_refused(settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        MultiWorker(**settings)


def test_a_replica_of_every_worker_reserves_a_device():
    spread = MultiWorker(3, replicas_per_worker=2)

    assert spread.resources(gpus_in_cluster=True) == TrialResources(cpus=6, gpus=6)
    assert MultiWorker(3).resources(gpus_in_cluster=False) == TrialResources(cpus=3)


def test_all_workers_get_the_same_share():
    assert MultiWorker(2).shares(TrialResources(cpus=6, gpus=2)) == (TrialResources(3, 1),) * 2
    assert Mirrored(2).shares(TrialResources(cpus=6)) == (TrialResources(6),)


@pytest.mark.parametrize(
    ("parallelism", "resources", "match"),
    [
        pytest.param(
            MultiWorker(2), TrialResources(cpus=3), "cpus is 3, which is not divisible", id="cpus"
        ),
        pytest.param(
            MultiWorker(2), TrialResources(2, 3), "gpus is 3, which is not divisible", id="gpus"
        ),
        pytest.param(
            MultiWorker(2), TrialResources(2, 0.5), "gpus is 0.5, which is not", id="share"
        ),
        pytest.param(
            MultiWorker(2), TrialResources(2, 4), "is 4 but the trial has 2 repl", id="idle gpus"
        ),
        pytest.param(
            MultiWorker(2, 2),
            TrialResources(4),
            "a worker on CPUs has one replica",
            id="two on cpu",
        ),
    ],
)
def test_resources_that_workers_cannot_share_are_refused(parallelism, resources, match):
    with pytest.raises(InvalidSettingsError, match=match):
        parallelism.check(resources)


def test_resources_for_each_worker_pass():
    MultiWorker(2, replicas_per_worker=2).check(TrialResources(cpus=2, gpus=4))


@pytest.mark.parametrize(
    ("make", "faults"),
    [
        pytest.param(
            lambda: ModelParallel(0, micro_batches=True),
            ["num_stages must .* not 0", "micro_batches must .* not True"],
            id="stages",
        ),
        pytest.param(
            lambda: Hybrid(0, -1, 1.5),
            ["num_replicas .* 0", "num_stages .* -1", "micro_batches .* 1.5"],
            id="hybrid",
        ),
    ],
)
def test_bad_numbers_of_stages_are_told_at_once(make, faults):
    with pytest.raises(InvalidSettingsError, match="(?s)" + ".*".join(faults)):
        make()


@pytest.mark.parametrize(
    ("parallelism", "num_devices"), [(ModelParallel(3), 3), (Hybrid(2, 3), 6)], ids=["3", "2x3"]
)
def test_each_stage_of_each_copy_reserves_a_device(parallelism, num_devices):
    on_gpus = parallelism.resources(gpus_in_cluster=True)

    assert on_gpus == TrialResources(cpus=num_devices, gpus=num_devices)
    assert parallelism.resources(gpus_in_cluster=False) == TrialResources(cpus=num_devices)
    parallelism.check(on_gpus)


@pytest.mark.parametrize(
    ("resources", "match"),
    [
        (TrialResources(cpus=3), "cpus is 3 .* 2 replicas of 2 stages.* reserve 4 or more"),
        (TrialResources(cpus=4, gpus=2), "gpus is 2 .* exactly one GPU each: reserve 4"),
        (TrialResources(cpus=4, gpus=0.5), "gpus is 0.5 .* reserve 4"),
    ],
    ids=["cpus", "gpus", "share"],
)
def test_stages_without_a_device_each_are_refused(resources, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Hybrid(2, 2).check(resources)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        pytest.param(lambda: Folds(1), "num_folds must be .* at least 2, not 1", id="one fold"),
        pytest.param(lambda: Folds(num_repeats=0), "num_repeats must .* not 0", id="repeats"),
        pytest.param(lambda: Folds(stratified="y"), "stratified must be true or", id="stratified"),
        pytest.param(lambda: Folds(micro_batches=0), "micro_batches must .* not 0", id="pieces"),
        pytest.param(lambda: Ensemble(1), "num_members must be .* not 1", id="one member"),
        pytest.param(lambda: Folds(0, num_devices=0, grouped=1), "3 errors", id="all at once"),
        pytest.param(
            lambda: Folds(3, num_devices=4), r"number of folds \(3\), not 4", id="idle devices"
        ),
        pytest.param(
            lambda: Ensemble(2, num_devices=3), r"number of members \(2\), not 3", id="idle devices"
        ),
    ],
)
def test_bad_settings_of_subtasks_are_refused(make, match):
    with pytest.raises(InvalidSettingsError, match=match):
        make()


def test_repeats_are_subtasks_of_their_own():
    assert Folds(5, num_repeats=2, num_devices=10).num_subtasks == 10


def test_each_device_of_subtasks_has_its_share():
    folds = Folds(5, num_devices=2)

    assert folds.resources(gpus_in_cluster=False) == TrialResources(cpus=2)
    assert folds.resources(gpus_in_cluster=True) == TrialResources(cpus=2, gpus=2)
    assert folds.shares(TrialResources(2, 0.5)) == (TrialResources(1, 0.25),) * 2


@pytest.mark.parametrize(
    ("resources", "match"),
    [
        pytest.param(
            TrialResources(3), "cpus is 3, which is not divisible by .*num_dev", id="cpus"
        ),
        pytest.param(TrialResources(2, 3), "gpus is 3 but .*num_devices is 2: a fold", id="gpus"),
    ],
)
def test_resources_that_devices_cannot_share_are_refused(resources, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Folds(num_devices=2).check(resources)


def test_a_staleness_bound_of_zero_is_refused_with_the_reason():
    with pytest.raises(InvalidSettingsError, match=r"not 0: .* synchronous, kind 'multi_worker'"):
        Asynchronous(max_staleness=0)


def test_all_faults_of_asynchronous_workers_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="placement") as caught:
        Asynchronous(0, max_staleness=1.5, server_cpus=-1, placement="spred", micro_batches=0)

    assert [fault.what.split()[0] for fault in caught.value.details] == [
        "num_workers",
        "micro_batches",
        "max_staleness",
        "server_cpus",
        "placement",
    ]
    assert "did you mean 'spread'?" in str(caught.value)


@pytest.mark.parametrize(
    ("gpus_in_cluster", "shares"),
    [
        pytest.param(True, (*(TrialResources(1, 1),) * 2, TrialResources(1)), id="gpus"),
        pytest.param(False, (TrialResources(1),) * 3, id="cpus"),
    ],
)
def test_the_server_has_a_cpu_and_the_workers_the_gpus(gpus_in_cluster, shares):
    asynchronous = Asynchronous(2)
    resources = asynchronous.resources(gpus_in_cluster=gpus_in_cluster)

    asynchronous.check(resources)
    assert asynchronous.shares(resources) == shares


def test_a_server_without_cpus_of_its_own_has_no_share():
    assert Asynchronous(2, server_cpus=0).shares(TrialResources(4)) == (TrialResources(2),) * 2


@pytest.mark.parametrize(
    ("resources", "match"),
    [
        pytest.param(TrialResources(2), "which leaves 1 for 2 workers", id="none-left"),
        pytest.param(TrialResources(4), "which leaves 3 for 2 workers", id="uneven"),
        pytest.param(TrialResources(3, 4), "gpus is 4 for 2 workers", id="gpus"),
    ],
)
def test_resources_that_workers_and_server_cannot_share_are_refused(resources, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Asynchronous(2).check(resources)


@dataclass(frozen=True)
class Chained(Parallelism):
    """A kind that nothing else knows."""

    kind: ClassVar[str] = "one_more"

    num_links: Count = 2
    max_links: OptionalCount = None
    closed: bool = False

    @property
    def num_devices(self):
        return self.num_links


def test_a_new_kind_has_rules_schema_label_and_resources_of_its_settings():
    with pytest.raises(InvalidSettingsError, match="closed") as caught:
        Chained(0, max_links=True, closed=None)

    assert [fault.what for fault in caught.value.details] == [
        "num_links must be an integer of at least 1, not 0",
        "max_links must be an integer of at least 1, not True",
        "closed must be true or false, not None",
    ]
    assert {name: field_schema(rule) for name, rule in Chained.rules().items()} == {
        "num_links": {"type": "integer", "minimum": 1},
        "max_links": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "closed": {"type": "boolean"},
    }
    assert Chained().label == "one more"
    assert Chained().resources(gpus_in_cluster=True) == TrialResources(2, 2)
    assert (Chained().scaled_to(2), Chained.on_devices(2)) == (None, None)


@pytest.mark.parametrize(
    ("parallelism", "num_replicas", "scaled"),
    [
        pytest.param(Mirrored(2, max_replicas=3), 4, Mirrored(4), id="mirrored"),
        pytest.param(MultiWorker(2, 2, min_workers=1), 6, MultiWorker(3, 2), id="workers"),
        pytest.param(MultiWorker(2, 2), 3, None, id="no whole workers"),
        pytest.param(ModelParallel(3), 2, Hybrid(2, 3), id="stages"),
        pytest.param(Hybrid(2, 3), 4, Hybrid(4, 3), id="hybrid"),
        pytest.param(Asynchronous(2), 4, None, id="asynchronous"),
    ],
)
def test_a_kind_knows_its_layout_with_another_number_of_replicas(parallelism, num_replicas, scaled):
    assert parallelism.scaled_to(num_replicas) == scaled


@pytest.mark.parametrize(
    "parallelism",
    [
        Mirrored(2),
        MultiWorker(2),
        ModelParallel(2),
        Hybrid(2, 1),
        Asynchronous(2, server_cpus=0),
        Folds(2, num_devices=2),
        Ensemble(2, num_devices=2),
    ],
    ids=lambda parallelism: parallelism.kind,
)
def test_each_process_is_on_a_node_with_the_type_of_gpus_and_the_custom_resources(parallelism):
    resources = TrialResources(2, 2, "H100", {"fast_disk": 1})
    parallelism.check(resources)

    shares = parallelism.shares(resources)
    assert len(shares) == parallelism.num_workers
    assert {(share.accelerator_type, *share.custom.items()) for share in shares} == {
        ("H100", ("fast_disk", 1))
    }
