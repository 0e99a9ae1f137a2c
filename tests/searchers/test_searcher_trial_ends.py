"""Ends of trials that Tune reports to the searcher, as Optuna gets them."""

import math

import pytest
from searchers_by_hand import make, trials_of

from tune_tf.outcome import Outcome


@pytest.mark.parametrize(
    ("last", "state"),
    [({"training_iteration": 3}, "COMPLETE"), ({"training_iteration": 2}, "PRUNED")],
)
def test_the_limit_that_tune_told_separates_complete_from_pruned(last, state):
    searcher = make()
    searcher.set_search_properties(None, None, {}, stop={"training_iteration": 3})
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_complete("a", {"loss": 0.5, "done": True, **last})
    [trial] = trials_of(searcher)
    assert trial.state.name == state
    assert trial.value == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "text"])
def test_a_metric_that_is_not_finite_never_leaves_a_trial_running(value):
    searcher = make()
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_result("a", {"loss": value, "training_iteration": 2})
    searcher.on_trial_complete("a", {"loss": value, "training_iteration": 3, "done": True})
    [trial] = trials_of(searcher)
    assert trial.state.name == "FAIL"
    assert trial.intermediate_values == {1: 1.0}
    assert trial.user_attrs["stop_reason"] == "diverged"
    assert trial.user_attrs["stop_cause"] == f"loss is {value} at iteration 3"


def test_a_retried_trial_that_a_scheduler_stops_is_pruned():
    searcher = make()
    searcher.suggest("a")
    for step in (1, 2, 3, 4, 1):  # died after 4, began again
        searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": step})
    searcher.on_trial_complete("a", {"loss": 2.0, "training_iteration": 2, "done": True})
    assert trials_of(searcher)[0].state.name == "PRUNED"


def test_finish_tells_what_became_of_trials_that_tune_dropped():
    searcher = make()
    ends = {
        "a": Outcome.OUT_OF_BUDGET,
        "b": Outcome.OUT_OF_BUDGET,
        "c": Outcome.COMPLETED,
        "d": Outcome.ERROR,
        "e": Outcome.INTERRUPTED,
        "stranger": Outcome.COMPLETED,
    }
    for trial_id in "abcde":
        searcher.suggest(trial_id)
    for trial_id in "ac":
        searcher.on_trial_result(trial_id, {"loss": 1.0, "training_iteration": 1})
    searcher.finish(ends)
    states = [trial.state.name for trial in trials_of(searcher)]
    assert states == ["PRUNED", "FAIL", "COMPLETE", "FAIL", "RUNNING"]
