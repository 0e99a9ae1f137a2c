"""Settings by which a sweep would depend on more than its settings are refused."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError

SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"rate": {"loguniform": [1e-4, 1e-1]}},
    "budget": {"num_samples": 4},
    "reproducible": True,
}
REFUSED = {
    "time": ({"budget": {"num_samples": 4, "time_budget_s": 60}}, "budget.time_budget_s"),
    "CPU-hours": ({"budget": {"num_samples": 4, "cpu_hours": 1}}, "budget.cpu_hours"),
    "GPU-hours": ({"budget": {"num_samples": 4, "gpu_hours": 1}}, "budget.gpu_hours"),
    "checkpoints of others": ({"scheduler": {"name": "pbt"}}, "scheduler.name"),
    "updates": (
        {"parallelism": {"kind": "asynchronous", "num_workers": 2}},
        "parallelism.kind",
    ),
    "objective": ({"objective": {"metric": "system/epoch_s", "mode": "min"}}, "objective"),
    "constraint": ({"constraints": {"system/epoch_s": "<= 3"}}, "system/epoch_s depends on the"),
}


@pytest.mark.parametrize(("settings", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_what_depends_on_the_machine_is_refused(settings, where):
    with pytest.raises(InvalidSettingsError, match=f"{where}.*reproducible is true"):
        SweepConfig.from_dict(SETTINGS | settings)


def test_all_are_refused_at_once():
    settings = {**REFUSED["updates"][0], **REFUSED["CPU-hours"][0]}
    with pytest.raises(InvalidSettingsError) as error:
        SweepConfig.from_dict(SETTINGS | settings)
    assert len(error.value.details) == 2


@pytest.mark.parametrize("budget", [{"epochs": 90}, {"target": 0.1}, {"patience": 4}])
def test_budgets_in_results_are_allowed(budget):
    assert SweepConfig.from_dict(SETTINGS | {"budget": {"num_samples": 4, **budget}}).reproducible
