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


@pytest.mark.parametrize(
    ("bounds", "where", "match"),
    [
        *(({"size": text}, "size", "must be a bound such as '<= 2e6'.* not ") for text in
          ("", "2e6", "< 3", "== 3", "<= three", "<= 1 2", "<=", 3, None)),
        *(({"size": text}, "size.bound", "must be a finite number") for text in
          ("<= nan", "<= inf", ">= -inf")),
        ({1: "2e6"}, "1", "must be a bound"),
        (["size <= 3"], "", "must be a mapping of metrics to bounds"),
    ],
)  # fmt: skip
def test_what_is_no_bound_is_refused_with_its_metric(bounds, where, match):
    with pytest.raises(InvalidSettingsError, match=match) as caught:
        Constraint.from_dict(bounds)
    assert [error.where for error in caught.value.details] == [where]


def test_all_errors_are_reported_at_once():
    with pytest.raises(InvalidSettingsError, match="3 errors"):
        Constraint("", "<", "3")
    with pytest.raises(InvalidSettingsError, match="2 errors"):
        Constraint.from_dict({"size": "2e6", "speed": "<= 3", "heat": "< 4"})


def test_a_mapping_gives_one_constraint_a_bound():
    assert Constraint.from_dict({"size": "<= 2e6", "speed": [">= 1", "<= 3"]}) == (
        Constraint("size", "<=", 2e6),
        Constraint("speed", ">=", 1.0),
        Constraint("speed", "<=", 3.0),
    )


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


def test_a_result_without_the_metric_does_not_keep_the_bound():
    constraint = Constraint("size", "<=", 3)
    assert constraint.holds({"size": 3})
    assert not constraint.holds({"size": 4})
    assert not constraint.holds({})


def test_a_constraint_has_a_text_and_a_hash():
    assert str(Constraint.parse("size", "<=2e6")) == "size <= 2e+06"
    assert hash(Constraint("size", "<=", 3)) == hash(Constraint("size", "<=", 3.0))
