"""How the final model is spread over devices."""

import pytest

from tune_tf import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import Hybrid, Mirrored, ModelParallel, MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.sweep.model.retrain import final_parallelism, final_resources


def config_of(**changes):
    return SweepConfig.from_dict(
        {
            "name": "a",
            "workload": "a:b",
            "objective": {"metric": "m", "mode": "min"},
            "space": {"width": 8},
            "budget": {"num_samples": 1},
            **changes,
        }
    )


@pytest.fixture
def node(monkeypatch):
    """Say what the largest node of the cluster has."""

    def node(cpus, gpus=0):
        there = {"CPU": cpus, "GPU": gpus}
        monkeypatch.setattr("tune_tf.sweep.model.retrain.largest_node", lambda share: there)

    return node


def test_without_gpus_one_copy_takes_all_cpus(node):
    node(8)
    spread = final_parallelism(config_of(), None, 32)

    assert spread == Mirrored()
    assert final_resources(config_of(), spread) == TrialResources(cpus=8)


def test_all_gpus_of_a_node_are_used(node):
    node(16, 4)
    spread = final_parallelism(config_of(), None, 32)

    assert spread == Mirrored(num_replicas=4)
    assert final_resources(config_of(), spread) == TrialResources(cpus=16, gpus=4)


def test_a_sweep_that_asked_for_no_gpus_gets_none(node):
    node(16, 4)
    config = config_of(resources={"cpus": 1, "gpus": 0})
    spread = final_parallelism(config, None, 32)

    assert final_resources(config, spread) == TrialResources(cpus=16)


def test_there_are_no_more_copies_than_rows_of_a_batch(node):
    node(16, 8)
    assert final_parallelism(config_of(), None, 2) == Mirrored(num_replicas=2)


ASKED = {
    "mirrored": ({"kind": "mirrored", "micro_batches": 2}, 3, Mirrored(3, micro_batches=2)),
    "hybrid": ({"kind": "hybrid", "num_stages": 3}, 4, Hybrid(4, 3)),
    "stages": ({"kind": "model_parallel", "num_stages": 2}, 2, Hybrid(2, 2)),
    "stages once": ({"kind": "model_parallel", "num_stages": 2}, 1, ModelParallel(2)),
    "folds": ({"kind": "folds", "num_folds": 5}, 2, Mirrored(2)),
    "ensemble": ({"kind": "ensemble", "num_members": 3}, 2, Mirrored(2)),
    "workers": ({"kind": "multi_worker", "num_workers": 2}, 4, MultiWorker(4)),
}


@pytest.mark.parametrize(("kind", "asked", "spread"), ASKED.values(), ids=ASKED.keys())
def test_a_number_of_copies_may_be_asked_for(kind, asked, spread):
    assert final_parallelism(config_of(parallelism=kind), asked, 32) == spread


def test_folds_become_one_model(node):
    node(8)
    config = config_of(parallelism={"kind": "folds", "num_folds": 5})
    assert final_parallelism(config, None, 32) == Mirrored()


def test_a_kind_without_copies_refuses_a_number_of_them():
    config = config_of(parallelism={"kind": "asynchronous", "num_workers": 2})
    with pytest.raises(
        InvalidSettingsError, match="kind 'asynchronous', which cannot be scaled to 3"
    ):
        final_parallelism(config, 3, 32)
