import math

import pytest

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.searchers.criteria import SearchCriteria

LOSS, SPEED = Objective("loss", "min"), Objective("speed", "max")
SIZE = Constraint("size", "<=", 10)
GOALS = SearchCriteria((LOSS, SPEED), (SIZE,))


@pytest.mark.parametrize("objective", [LOSS, [LOSS], (LOSS,)])
@pytest.mark.parametrize("constraints", [{"size": "<= 10"}, [SIZE]])
def test_goals_are_taken_in_all_forms(objective, constraints):
    assert SearchCriteria.of(objective, constraints) == SearchCriteria((LOSS,), (SIZE,))


@pytest.mark.parametrize(
    ("objective", "constraints", "match"),
    [
        ([], None, "objective is empty"),
        ([LOSS, Objective("loss", "max")], None, "names the metric 'loss' twice"),
        (["loss"], None, "must be an Objective or several, not 'loss'"),
        (LOSS, ["size"], "must be Constraint objects .* not 'size'"),
        (LOSS, {"size": "10"}, "size: must be a bound"),
    ],
)
def test_goals_of_no_form_are_refused(objective, constraints, match):
    with pytest.raises(InvalidSettingsError, match=match):
        SearchCriteria.of(objective, constraints)


def test_all_missing_metrics_are_named_with_those_reported():
    match = (
        r"metric 'speed'; did you mean 'sped'\? and metric 'size' of the constraint size <= 10 "
        "are not reported; the trial reports loss, sped"
    )
    with pytest.raises(UnknownMetricError, match=match):
        GOALS.check({"loss": 1.0, "sped": 2, "note": "x"})


@pytest.mark.parametrize("speed", [math.nan, math.inf, None, "fast"])
def test_there_are_values_only_if_all_are_finite(speed):
    assert GOALS.values({"loss": 1, "speed": 2}) == (1.0, 2.0)
    assert GOALS.values({"loss": 1, "speed": speed}) is None


@pytest.mark.parametrize(
    ("size", "violation"), [(12, 2.0), (3, -7.0), (math.nan, 10.0), (None, 10.0)]
)
def test_violations_are_finite_for_optuna(size, violation):
    assert GOALS.violations({"size": size}) == {"size <= 10": violation}
