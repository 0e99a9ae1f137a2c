"""The trial registry against a real study, without Ray: proposals, ends and losses."""

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.registry_state import RegistryState
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_attrs import tune_trial_id
from tune_tf.searchers.trial_outcome import TrialOutcome
from tune_tf.searchers.trial_registry import TrialRegistry


def suggest(trial):
    return {"x": trial.suggest_float("x", 0, 1), "fixed": 3}


def open_registry(storage, state=None):
    study = open_study(storage, "s", SearchCriteria((Objective("loss", "min"),)))
    study.sampler = optuna.samplers.RandomSampler(seed=1)
    return TrialRegistry(study, storage, suggest, state)


def asked(registry, *tune_ids):
    if not registry.reconciled:
        registry.reconcile()
    return [registry.ask(tune_id) for tune_id in tune_ids]


def states(registry):
    return [trial.state.name for trial in registry.study.trials]


@pytest.fixture
def storage():
    return InMemoryStorage()


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


def test_trials_without_an_end_are_counted_and_named(storage):
    registry = open_registry(storage)
    asked(registry, "a", "b", "c")
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry.tell("b", TrialOutcome(Outcome.ERROR))
    assert registry.num_unfinished == 1
    assert registry.reopen_unfinished({"a", "c"}) == ["c"]
    assert registry.study.trials[1].user_attrs["stop_cause"] == "error"


def test_runs_that_are_not_known_are_not_linked(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1), {"mlflow_run_id": "run a"})
    registry.link_runs({"a": None})
    assert registry.study.user_attrs.get("mlflow_run_ids") is None


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


def test_a_trial_that_ended_unsaved_is_linked_to_its_rerun(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    state = registry.state.copy()
    asked(registry, "b")
    registry.tell("b", TrialOutcome(Outcome.COMPLETED, 0.5, 3))
    again = open_registry(storage, state)
    again.reconcile({"a"})
    again.ask("c")
    again.link_runs({"a": "run a", "c": "run c"})
    attrs = again.study.user_attrs
    assert [tune_trial_id(trial, attrs) for trial in again.study.trials] == ["a", "c"]
    assert attrs["mlflow_run_ids"] == {"0": "run a", "1": "run c"}
    assert states(again) == ["RUNNING", "COMPLETE"]


def test_a_trial_killed_while_drawing_parameters_gets_the_missing_ones(storage):
    first = open_registry(storage)
    first.reconcile()
    first.study.ask()  # killed here: no parameter, no link
    registry = open_registry(storage)
    assert registry.reconcile() == 1
    assert set(registry.ask("a")) == {"x", "fixed"}
    assert len(registry.study.trials) == 1
    assert registry.study.trials[0].user_attrs["tune_trial_id"] == "a"


def test_a_resume_does_not_hand_out_trials_of_an_earlier_sweep(storage):
    earlier = open_registry(storage)
    asked(earlier, "a")
    earlier.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    saved = open_registry(storage).state.copy()
    registry = open_registry(storage, saved)
    assert registry.reconcile() == 1
    assert registry.state.orphans == []


def test_a_trial_that_the_book_saved_and_tune_did_not_is_handed_out_again(storage):
    first = open_registry(storage)
    values = asked(first, "done", "a", "b")
    first.tell("done", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry = open_registry(storage, first.state.copy())
    registry.reconcile({"a"})
    assert registry.ask("B") == values[2]
    assert len(registry.study.trials) == 3


def test_orphans_that_no_trial_takes_up_get_an_end(storage):
    first = open_registry(storage)
    saved = first.state.copy()
    asked(first, "a", "b")
    registry = open_registry(storage, saved)
    asked(registry, "A")
    registry.abandon_orphans()
    assert states(registry) == ["RUNNING", "FAIL"]
    assert registry.study.trials[1].user_attrs["stop_cause"] == "never resumed"


def test_a_running_trial_keeps_the_config_that_optuna_drew(storage):
    """As of population-based training, which may turn a condition on that was off."""

    def conditional(trial):
        if trial.suggest_categorical("kind", ["plain", "wide"]) == "wide":
            trial.suggest_int("width", 1, 9)

    study = open_study(storage, "s", SearchCriteria((Objective("loss", "min"),)))
    study.enqueue_trial({"kind": "plain"})
    registry = TrialRegistry(study, storage, conditional)
    asked(registry, "a")
    registry.report("a", 1, 0.5)
    again = TrialRegistry(study, storage, conditional, registry.state.copy())
    again.reconcile({"a"}, {"a": {"kind": "wide", "width": 5}})
    assert study.trials[0].params == {"kind": "plain"}


def test_a_page_of_another_study_is_refused(storage):
    with pytest.raises(SweepConflictError, match=r"'s' has 0 trials, but .* knows 3"):
        open_registry(storage, RegistryState(num_known=3))


def test_trials_that_the_study_lost_are_made_anew_with_their_configs(storage, caplog):
    """As after a loss of power: the searcher's state is on the disk, the study's end is not."""
    first = open_registry(storage)
    asked(first, "a", "b")
    first.tell("b", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    saved = first.state.copy()
    registry = open_registry(InMemoryStorage(), saved)
    registry.reconcile({"a", "b"}, {"a": {"x": 0.25, "fixed": 3}, "b": {"x": 0.75, "fixed": 3}})
    assert [trial.params["x"] for trial in registry.study.trials] == [0.25, 0.75]
    assert [trial.user_attrs["tune_trial_id"] for trial in registry.study.trials] == ["a", "b"]
    assert "had lost its last 2 trials" in caplog.text


@pytest.mark.parametrize("config", [{"y": 7.0}, {"x": 7.0}], ids=["unknown", "out of range"])
def test_a_lost_trial_whose_config_left_the_space_is_made_without_it(storage, config):
    first = open_registry(storage)
    asked(first, "a")
    registry = open_registry(InMemoryStorage(), first.state.copy())
    registry.reconcile({"a"}, {"a": config})
    assert registry.study.trials[0].params == {}
