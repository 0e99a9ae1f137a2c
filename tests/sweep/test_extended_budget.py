"""Budgets that are changed by name."""

import pytest

from tune_tf.config import BudgetSettings
from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep.config_diff import extended_budget

BUDGET = BudgetSettings(num_samples=10, cpu_hours=1.5)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"num_samples": "+20"}, {"num_samples": 30}),
        ({"num_samples": 25}, {"num_samples": 25}),
        ({"num_samples": "25"}, {"num_samples": 25}),
        ({"cpu_hours": "+0.5"}, {"cpu_hours": 2.0}),
        ({"cpu_hours": "none"}, {"cpu_hours": None}),
        ({"target": "0.98", "patience": 5}, {"target": 0.98, "patience": 5}),
    ],
    ids=["more trials", "a number", "a number as text", "hours", "no limit", "two at a time"],
)
def test_a_change_takes_the_place_of_what_there_was(changes, wanted):
    assert extended_budget(BUDGET, changes, num_trials=10, num_epochs=90) == BUDGET.model_copy(
        update=wanted
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "budget: is unchanged: name what to increase"),
        ({"num_samples": 10}, "budget: is unchanged"),
        ({"num_sample": 12}, r"not 'num_sample'; did you mean 'num_samples'\?"),
        ({"num_samples": "many"}, "num_samples: must be a number, .* not 'many'"),
        ({"num_samples": "none"}, "num_samples: must be an integer"),
        ({"epochs": "+5"}, r"epochs: has no limit that '\+5' could be added to: give a number"),
        ({"cpu_hours": -1}, "cpu_hours: must be more than 0"),
        ({"num_samples": 3}, "num_samples: must be at least 4, the number of trials so far"),
        ({"epochs": 90}, "epochs: must be more than 90, the epochs so far, not 90"),
    ],
    ids=[
        "nothing",
        "no change",
        "an unknown limit",
        "no number",
        "no trials",
        "more of no limit",
        "a negative one",
        "fewer than there are",
        "fewer epochs than there are",
    ],
)
def test_a_wrong_change_is_refused(changes, text):
    with pytest.raises(InvalidSettingsError, match=text):
        extended_budget(BUDGET, changes, num_trials=4, num_epochs=90)
