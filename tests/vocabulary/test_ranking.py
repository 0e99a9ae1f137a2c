"""Which trials are the best."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.ranking import (
    Candidate,
    KeepBest,
    best_of,
    kept_iteration,
    kept_result,
    pareto_front,
)

LOSS = Objective("loss", "min")
ACCURACY = Objective("accuracy", "max")
DONE, STOPPED = Outcome.COMPLETED, Outcome.PRUNED


@pytest.mark.parametrize(
    ("candidates", "best"),
    [
        pytest.param([("a", DONE, 2.0), ("b", DONE, 1.0)], "b", id="the-smallest"),
        pytest.param([("a", DONE, 2.0), ("b", STOPPED, 1.0)], "a", id="completed-first"),
        pytest.param([("a", STOPPED, 2.0), ("b", None, 1.0)], "b", id="none-completed"),
        pytest.param([("a", DONE, 1.0), ("b", DONE, 1.0)], "a", id="the-first-of-equals"),
        pytest.param([("a", DONE, math.nan), ("b", STOPPED, 3.0)], "b", id="nan-never"),
        pytest.param([("a", DONE, 1.0, False), ("b", DONE, 2.0)], "b", id="infeasible-never"),
        pytest.param([("a", DONE, 1.0, False), ("b", STOPPED, 2.0)], "b", id="feasible-though-cut"),
    ],
)
def test_the_best_is_a_feasible_trial_that_ran_to_its_end(candidates, best):
    found = best_of((Candidate(*each) for each in candidates), LOSS)
    assert found is not None
    assert found.key == best


numbers = st.integers(0, 4).map(float)


@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=12))
def test_the_front_is_what_the_definition_says(points):
    objectives = [LOSS, ACCURACY, Objective("size", "min")]

    def dominates(one, other):
        at_least = all(
            a == b or objective.better(a, b)
            for a, b, objective in zip(one, other, objectives, strict=True)
        )
        return at_least and one != other

    expected = tuple(
        index
        for index, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    )
    assert pareto_front(dict(enumerate(points)), objectives) == expected
    for one, other in itertools.combinations(expected, 2):
        assert not dominates(points[one], points[other])


LAST = {"loss": 3.0, "training_iteration": 9, "stop_reason": "completed", "system/rows_per_s": 7.0}


def test_a_trial_keeps_the_metrics_of_its_best_epoch_and_its_number_of_iterations():
    result = {**LAST, "kept/loss": 1.0, "kept/training_iteration": 4}
    assert kept_result(result) == {**LAST, "loss": 1.0}
    assert kept_iteration(result) == 4
    assert kept_result(LAST) == LAST
    assert (kept_iteration(LAST), kept_iteration({})) == (9, 0)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1))
def test_the_best_epoch_is_the_first_best_of_the_feasible_ones_if_there_are_any(epochs):
    rule = KeepBest(LOSS, (Constraint("size", "<=", 0.0),))
    metrics = [{"loss": loss, "size": size} for loss, size in epochs]
    best = metrics[0]
    for each in metrics[1:]:
        best = each if rule.prefers(each, best) else best
    feasible = [each for each in metrics if each["size"] <= 0] or metrics
    assert best is min(feasible, key=lambda each: each["loss"])


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "much"])
def test_an_epoch_without_a_finite_value_cannot_be_the_best(value):
    assert not KeepBest(LOSS).accepts({"loss": value})
    assert not KeepBest(LOSS).accepts({})
