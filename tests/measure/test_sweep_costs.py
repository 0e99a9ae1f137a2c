"""Upper bounds of a sweep, from the measured costs of its models."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import WorkloadError
from tune_tf.measure.sweep_costs import ModelCosts, SweepCosts, _find_extremes
from tune_tf.measure.trial_costs import TrialCosts
from tune_tf.space import Constant, SearchSpace
from tune_tf.workloads.digits import DigitsMLP


def model(label="largest", epoch_s=2.0, start_s=10.0, memory_bytes=3e9, checkpoint_bytes=1000):
    costs = TrialCosts(start_s, epoch_s, 100.0, memory_bytes, None, checkpoint_bytes)
    return ModelCosts(label, {}, 10, 1, costs)


def bounds(*, models=None, **settings):
    given = {
        "name": "mine",
        "workload": "tune_tf.workloads.digits:DigitsMLP",
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "space": {"width": {"choice": [16, 32]}, "batch_size": 32},
        "epochs": 9,
        "scheduler": {"name": "asha"},
        "budget": {"num_samples": 5},
        "mlflow": None,
    }
    config = SweepConfig.from_dict(given | settings)
    return SweepCosts.of(config, models or (model(),), num_at_once=2)


def test_the_bounds_are_those_of_the_slowest_and_largest_model_in_every_trial():
    small = model("smallest", epoch_s=1.0, start_s=12.0, memory_bytes=1e9, checkpoint_bytes=10)
    found = bounds(models=(small, model()))
    assert found.epochs == 5 * 9
    assert found.time_s == 3 * (12 + 9 * 2)  # three trials after each other
    assert found.memory_bytes == 2 * 3e9
    assert found.disk_bytes == found.end_disk_bytes == 5 * 2 * 1000


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"budget": {"num_samples": 5, "time_budget_s": 30}}, "time_s", 30 + 2),
        ({"budget": {"num_samples": 5, "epochs": 20}}, "epochs", 20 + 2),
        ({"keep_checkpoints": 1}, "end_disk_bytes", 2 * 1000),
        ({"keep": "best"}, "disk_bytes", 2 * 5 * 2 * 1000),
        ({"models": (model(memory_bytes=None),)}, "memory_bytes", None),
    ],
    ids=["time budget", "epochs", "checkpoints kept", "best epoch", "unknown"],
)
def test_settings_limit_the_bounds(settings, name, value):
    assert getattr(bounds(**settings), name) == value


@pytest.mark.tf
def test_the_extremes_are_found_by_building_with_one_for_the_smallest_batches():
    config = SweepConfig.from_dict(
        {
            "name": "mine",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": {
                "optimizer": {"choice": ["rmsprop", "adamw", "sgd"]},
                "momentum": 0.0,
                "weight_decay": 0.1,
                "learning_rate": {"loguniform": [1e-4, 1e-1]},
                "dropout": 0.1,
                "width": {"choice": [32, 16]},
                "batch_size": {"choice": [16, 64]},
            },
            "budget": {"num_samples": 2},
        }
    )
    found = _find_extremes(DigitsMLP(), config.space)
    names = ("optimizer", "width", "batch_size")
    chosen = {label: [it[name] for name in names] for label, (it, _) in found.items()}
    assert chosen == {
        "smallest": ["sgd", 16, 16],
        "largest, smallest batch": ["adamw", 32, 16],
        "largest": ["adamw", 32, 64],
    }
    assert found["smallest"][1] < found["largest"][1]
    constants = SearchSpace(found["largest"][0])
    assert _find_extremes(DigitsMLP(), constants) == {"largest": found["largest"]}
    with pytest.raises(WorkloadError, match=r"width=0.*cannot be built"):
        _find_extremes(DigitsMLP(), SearchSpace({**config.space.parameters, "width": Constant(0)}))
