"""Tests of the trial registry against a real study, without Ray: proposals and ends."""

import pytest
from optuna.trial import TrialState
from registries import asked, open_registry, states

from tune_tf.outcome import Outcome
from tune_tf.searchers.trial_outcome import TrialOutcome


def test_a_trial_is_asked_for_with_its_constants_and_linked(storage):
    registry = open_registry(storage)
    [values] = asked(registry, "a")
    [trial] = registry.study.trials
    assert values == trial.params | {"fixed": 3}
    assert trial.user_attrs == {"tune_trial_id": "a"}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.COMPLETED, "COMPLETE"),
        (Outcome.PRUNED, "PRUNED"),
        (Outcome.OUT_OF_BUDGET, "PRUNED"),
        (Outcome.DIVERGED, "FAIL"),
        (Outcome.OOM, "FAIL"),
        (Outcome.ERROR, "FAIL"),
    ],
    ids=lambda value: getattr(value, "value", value),
)
def test_each_end_is_told_once_with_its_reason_and_its_curve(storage, outcome, state):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.report("a", 1, 0.5)
    for _ in range(2):
        registry.tell("a", TrialOutcome(outcome, 0.25, 2, "because"))
    [trial] = registry.study.trials
    assert trial.state.name == state
    assert trial.intermediate_values == {1: 0.5, 2: 0.25}
    assert trial.value == (None if state == "FAIL" else 0.25)
    assert trial.user_attrs["stop_reason"] == outcome.value
    assert trial.user_attrs["stop_cause"] == "because"


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [(Outcome.COMPLETED, None), (Outcome.PRUNED, None), (Outcome.ERROR, "error")],
    ids=["completed", "pruned", "error"],
)
def test_only_a_failure_has_a_cause_where_none_was_given(storage, outcome, cause):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.tell("a", TrialOutcome(outcome, 0.5, 1))
    assert registry.study.trials[0].user_attrs.get("stop_cause") == cause


def test_trials_without_an_end_are_counted_and_named(storage):
    registry = open_registry(storage)
    asked(registry, "a", "b", "c")
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry.tell("b", TrialOutcome(Outcome.ERROR))
    assert registry.num_unfinished == 1
    assert registry.reopen_unfinished({"a", "c"}) == ["c"]
    assert registry.study.trials[1].user_attrs["stop_cause"] == "error"


def test_the_last_value_of_a_trial_is_known_from_its_curve(storage):
    registry = open_registry(storage)
    asked(registry, "a", "b")
    registry.report("a", 1, 0.5)
    registry.report("a", 2, 0.75)
    state = registry.state.copy()
    state.records["a"].values = ()  # as in a state that was saved before
    again = open_registry(storage, state)
    assert [again.last_values(tune_id) for tune_id in ("a", "b", "stranger")] == [(0.75,), (), ()]


def test_runs_that_are_not_known_are_not_linked(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1), {"mlflow_run_id": "run a"})
    registry.link_runs({"a": None})
    assert registry.study.user_attrs.get("mlflow_run_ids") is None


def test_an_interrupted_trial_stays_running(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.tell("a", TrialOutcome(Outcome.INTERRUPTED, 0.5, 1))
    assert states(registry) == ["RUNNING"]


def test_a_trial_stopped_before_its_first_result_is_failed(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.tell("a", TrialOutcome(Outcome.OUT_OF_BUDGET))
    [trial] = registry.study.trials
    assert trial.state is TrialState.FAIL
    assert trial.user_attrs["stop_cause"] == "stopped before its first result"
    assert trial.user_attrs["stop_reason"] == "out_of_budget"


def test_steps_that_a_retry_repeats_keep_their_first_value(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    for step, value in [(1, 0.1), (2, 0.2), (1, 9.0), (2, 9.0), (3, 0.3)]:
        registry.report("a", step, value)
    assert registry.study.trials[0].intermediate_values == {1: 0.1, 2: 0.2, 3: 0.3}


def test_config_changed_at_keeps_the_first_change(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.note_change("a", 2)
    registry.note_change("a", 4)
    assert registry.study.trials[0].user_attrs["config_changed_at"] == 2
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 6), {"config_changed_at": 5})
    assert registry.study.trials[0].user_attrs["config_changed_at"] == 2


def test_trials_of_others_are_left_alone(storage):
    registry = open_registry(storage)
    registry.note_result("stranger", 1)
    registry.report("stranger", 1, 0.5)
    registry.tell("stranger", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    assert states(registry) == []


def test_a_trial_whose_end_somebody_else_told_keeps_it(storage):
    registry = open_registry(storage)
    asked(registry, "a", "b")
    registry.study.tell(0, state=TrialState.FAIL)
    registry.study.tell(1, state=TrialState.FAIL)
    registry.report("a", 1, 0.5)
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry.tell("b", TrialOutcome(Outcome.ERROR))
    assert states(registry) == ["FAIL", "FAIL"]


def test_a_space_that_raises_leaves_no_running_trial(storage):
    registry = open_registry(storage)
    registry._suggest = lambda trial: 1 / 0
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        asked(registry, "a")
    assert states(registry) == ["FAIL"]
    assert registry.study.trials[0].user_attrs["stop_cause"].endswith("division by zero")
