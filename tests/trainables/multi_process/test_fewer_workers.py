"""The callback that shrinks a failed trial to the live nodes."""

from types import SimpleNamespace

import pytest
from ray import tune

from tune_tf import FewerWorkers, trainable
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import MultiWorker
from tune_tf.trainables import fewer_workers
from tune_tf.trainables.memory.retry_resources import RetryResources, micro_batches_of
from tune_tf.tune_internals.controller import use_controller
from tune_tf.workload import Workload

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


def test_micro_batches_and_retries_after_out_of_memory_are_kept(recovered):
    bundles = [{}, *[{"CPU": 1.0}] * 3]
    found = recovered(RetryResources(bundles, "PACK", micro_batches=4, num_retries=2))
    assert len(found.bundles) == 2
    assert micro_batches_of(found, PARALLELISM) == 4
    assert found.num_retries == 2


class Nothing(Workload):
    """Is never loaded."""

    def load_data(self, config):
        raise NotImplementedError

    def build_model(self, config):
        raise NotImplementedError


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("callbacks", [[], [FewerWorkers(MultiWorker(2, min_workers=1))]])
def test_tune_run_without_the_callback_refuses_min_workers(tmp_path, callbacks):
    message = r"min_workers=1 .* callbacks=\[tune_tf.FewerWorkers\(parallelism\)\], with the"
    with pytest.raises(InvalidSettingsError, match=message):
        tune.run(
            trainable(Nothing, PARALLELISM), storage_path=tmp_path, callbacks=callbacks, verbose=0
        )


def test_the_callback_satisfies_min_workers():
    callbacks = SimpleNamespace(_callbacks=[tune.Callback(), FewerWorkers(PARALLELISM)])
    with use_controller(SimpleNamespace(_callbacks=callbacks)):
        request = trainable(Nothing, PARALLELISM).default_resource_request({})
    assert len(request.bundles) == 3
