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
from tune_tf.searchers.trial_registry import TrialRegistry


def suggest(trial):
    return {"x": trial.suggest_float("x", 0, 1), "fixed": 3}


CRITERIA = SearchCriteria((Objective("loss", "min"),))


def open_registry(storage, state=None):
    study = open_study(storage, "s", CRITERIA)
    study.sampler = optuna.samplers.RandomSampler(seed=1)
    return TrialRegistry(study, storage, suggest, CRITERIA, state)


def result(iteration, loss):
    return {"training_iteration": iteration, "loss": loss}


def asked(registry, *tune_ids):
    if not registry.reconciled:
        registry.reconcile()
    return [registry.ask(tune_id) for tune_id in tune_ids]


def states(registry):
    return [trial.state.name for trial in registry.study.trials]


@pytest.fixture
def storage():
    return InMemoryStorage()


def test_a_trial_whose_end_somebody_else_told_keeps_it(storage):
    registry = open_registry(storage)
    asked(registry, "a", "b")
    registry.study.tell(0, state=TrialState.FAIL)
    registry.study.tell(1, state=TrialState.FAIL)
    registry.report("a", result(1, 0.5))
    registry.report("a", result(1, 0.5))
    registry.tell("a", Outcome.COMPLETED)
    registry.tell("b", Outcome.ERROR)
    assert states(registry) == ["FAIL", "FAIL"]


def test_a_space_that_raises_leaves_no_running_trial(storage):
    registry = open_registry(storage)
    registry._suggest = lambda trial: 1 / 0
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        asked(registry, "a")
    assert states(registry) == ["FAIL"]
    assert registry.study.trials[0].user_attrs["stop_cause"].endswith("division by zero")


def test_a_resume_does_not_hand_out_trials_of_an_earlier_sweep(storage):
    earlier = open_registry(storage)
    asked(earlier, "a")
    earlier.report("a", result(1, 0.5))
    earlier.tell("a", Outcome.COMPLETED)
    saved = open_registry(storage).state.copy()
    registry = open_registry(storage, saved)
    assert registry.reconcile() == 1
    assert registry.state.orphans == []


def test_a_running_trial_keeps_the_config_that_optuna_drew(storage):
    """As of population-based training, which may turn a condition on that was off."""

    def conditional(trial):
        if trial.suggest_categorical("kind", ["plain", "wide"]) == "wide":
            trial.suggest_int("width", 1, 9)

    study = open_study(storage, "s", CRITERIA)
    study.enqueue_trial({"kind": "plain"})
    registry = TrialRegistry(study, storage, conditional, CRITERIA)
    asked(registry, "a")
    registry.report("a", result(1, 0.5))
    again = TrialRegistry(study, storage, conditional, CRITERIA, registry.state.copy())
    again.reconcile({"a"}, {"a": {"kind": "wide", "width": 5}})
    assert study.trials[0].params == {"kind": "plain"}


def test_a_page_of_another_study_is_refused(storage):
    with pytest.raises(SweepConflictError, match=r"'s' has 0 trials, but .* knows 3"):
        open_registry(storage, RegistryState(num_known=3))


def test_trials_that_the_study_lost_are_made_anew_with_their_configs(storage, caplog):
    """As after a loss of power: the searcher's state is on the disk, the study's end is not."""
    first = open_registry(storage)
    asked(first, "a", "b")
    first.report("b", result(1, 0.5))
    first.tell("b", Outcome.COMPLETED)
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
