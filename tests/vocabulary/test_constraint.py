"""Constraint: a bound on a reported metric."""

import math

import pytest

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError


@pytest.mark.parametrize(
    ("text", "relation", "bound"),
    [("<= 2e6", "<=", 2e6), (">=0.9", ">=", 0.9), (" <= -3 ", "<=", -3.0)],
)
def test_a_text_is_read(text, relation, bound):
    assert Constraint.parse("size", text) == Constraint("size", relation, bound)


@pytest.mark.parametrize("text", ["", "2e6", "< 3", "== 3", "<= three", "<= 1 2", "<=", 3, None])
def test_a_text_that_is_no_bound_is_refused(text):
    with pytest.raises(InvalidSettingsError, match=r"must be a bound such as '<= 2e6'.* not "):
        Constraint.parse("size", text)


@pytest.mark.parametrize("text", ["<= nan", "<= inf", ">= -inf"])
def test_a_bound_that_is_not_finite_is_refused(text):
    with pytest.raises(InvalidSettingsError, match="bound: must be a finite number"):
        Constraint.parse("size", text)


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match="3 errors") as caught:
        Constraint("", "<", "3")
    assert len(caught.value.details) == 3


def test_a_mapping_gives_one_constraint_a_bound():
    assert Constraint.from_dict({"size": "<= 2e6", "speed": [">= 1", "<= 3"]}) == (
        Constraint("size", "<=", 2e6),
        Constraint("speed", ">=", 1.0),
        Constraint("speed", "<=", 3.0),
    )


def test_faults_of_a_mapping_are_placed_by_metric():
    with pytest.raises(InvalidSettingsError, match="2 errors") as caught:
        Constraint.from_dict({"size": "2e6", "speed": "<= 3", "heat": "< 4"})
    assert [error.where for error in caught.value.details] == ["size", "heat"]


def test_a_metric_that_yaml_reads_as_a_number_is_named_like_any_other():
    with pytest.raises(InvalidSettingsError) as caught:
        Constraint.from_dict({1: "2e6"})
    assert [error.where for error in caught.value.details] == ["1"]


def test_what_is_no_mapping_is_refused():
    with pytest.raises(InvalidSettingsError, match="must be a mapping of metrics to bounds"):
        Constraint.from_dict(["size <= 3"])


@pytest.mark.parametrize(
    ("text", "value", "violation"),
    [
        ("<= 3", 5, 2.0),
        ("<= 3", 3, 0.0),
        ("<= 3", 1, -2.0),
        (">= 3", 1, 2.0),
        (">= 3", 5.5, -2.5),
        ("<= 3", math.nan, math.inf),
        ("<= 3", -math.inf, math.inf),
        (">= 3", None, math.inf),
        ("<= 3", "1", math.inf),
    ],
)
def test_a_violation_is_how_far_a_value_is_beyond_the_bound(text, value, violation):
    assert Constraint.parse("size", text).violation(value) == violation


@pytest.mark.parametrize(
    ("result", "holds"), [({"size": 3}, True), ({"size": 4}, False), ({}, False)]
)
def test_a_result_without_the_metric_does_not_keep_the_bound(result, holds):
    assert Constraint("size", "<=", 3).holds(result) is holds


def test_text_of_a_constraint_has_its_metric_and_bound():
    assert str(Constraint.parse("size", "<=2e6")) == "size <= 2e+06"


def test_equal_bounds_are_equal_whatever_their_number_type():
    assert hash(Constraint("size", "<=", 3)) == hash(Constraint("size", "<=", 3.0))
