"""Bounds on reported metrics."""

import math

import pytest

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.errors import InvalidSettingsError


@pytest.mark.parametrize(
    ("text", "relation", "bound"),
    [("<= 2e6", "<=", 2e6), (">=0.9", ">=", 0.9), ("  <=  -3 ", "<=", -3.0)],
)
def test_a_bound_is_read_from_a_text(text, relation, bound):
    assert Constraint.parse("size", text) == Constraint("size", relation, bound)


@pytest.mark.parametrize("text", ["< 3", "3", "<= x", "<= nan", "<= inf", "", None, 3, ">= 1 2"])
def test_a_text_that_is_no_bound_is_refused(text):
    with pytest.raises(InvalidSettingsError, match="bound"):
        Constraint.parse("size", text)


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="3 faults"):
        Constraint("", "<", math.nan)
    with pytest.raises(InvalidSettingsError, match="2 faults"):
        Constraint.from_dict({"a": "< 1", "b": "<= 1", "c": "1"})


@pytest.mark.parametrize(
    ("text", "value", "violation"),
    [
        ("<= 2", 3, 1),
        ("<= 2", 2, 0),
        ("<= 2", 0.5, -1.5),
        (">= 2", 3, -1),
        (">= 2", 1, 1),
        ("<= 2", math.nan, math.inf),
        (">= 2", math.inf, math.inf),
        (">= 2", None, math.inf),
    ],
)
def test_the_violation_is_how_far_a_value_is_beyond_the_bound(text, value, violation):
    assert Constraint.parse("size", text).violation(value) == violation


def test_a_result_is_feasible_if_it_keeps_all_bounds():
    constraints = Constraint.from_dict({"size": "<= 2", "speed": ">= 1"})
    assert is_feasible(constraints, {"size": 2, "speed": 1})
    assert not is_feasible(constraints, {"size": 2, "speed": 0})
    assert not is_feasible(constraints, {"size": 2})
    assert is_feasible((), {})


def test_a_constraint_reads_as_it_was_written():
    assert str(Constraint.parse("params_count", "<=2e6")) == "params_count <= 2e+06"
