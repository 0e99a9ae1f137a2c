"""The callback that shrinks a failed trial to the live nodes."""

from types import SimpleNamespace

import pytest
from ray import tune

from tune_tf import FewerWorkers
from tune_tf.parallelism import MultiWorker
from tune_tf.trainables import fewer_workers
from tune_tf.trainables.memory.oom_retries import RetryResources, micro_batches_of

PARALLELISM = MultiWorker(3, min_workers=1)


@pytest.fixture
def recovered(monkeypatch):
    """Return what a trial with a reservation has reserved after a node was lost."""
    monkeypatch.setattr(fewer_workers, "capacity_by_node", lambda *_, **__: [2])

    def recovered(reserved):
        trial = SimpleNamespace(placement_group_factory=reserved)
        trial.update_resources = lambda it: setattr(trial, "placement_group_factory", it)
        FewerWorkers(PARALLELISM).on_trial_recover(trial)
        return trial.placement_group_factory

    return recovered


def test_a_trial_has_the_workers_that_live_nodes_hold(recovered):
    reserved = tune.PlacementGroupFactory([{}, *[{"CPU": 1.0}] * 3], "SPREAD")
    assert recovered(reserved) == tune.PlacementGroupFactory([{}, *[{"CPU": 1.0}] * 2], "SPREAD")


def test_micro_batches_after_out_of_memory_are_kept(recovered):
    bundles = [{}, *[{"CPU": 1.0}] * 3]
    found = recovered(RetryResources(bundles, "PACK", micro_batches=4))
    assert len(found.bundles) == 2
    assert micro_batches_of(found, PARALLELISM) == 4
