"""Trials that the study or the registry's state has lost."""

import pytest
from optuna.storages import InMemoryStorage
from registries import asked, open_registry, states

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.registry_state import RegistryState
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_outcome import TrialOutcome


def test_a_page_of_another_study_is_refused(storage):
    with pytest.raises(SweepConflictError, match=r"'s' has 0 trials, but .* knows 3"):
        open_registry(storage, RegistryState(num_known=3))


def test_a_trial_whose_end_the_storage_lost_is_no_zombie(storage):
    """As after a damaged journal: the page knows the end, the study does not."""
    first = open_registry(storage)
    asked(first, "a", "b")
    saved = first.state.copy()
    saved.records["a"].finished = True
    registry = open_registry(storage, saved)
    registry.reconcile({"a", "b"})
    registry.close_lost_trials()
    assert states(registry) == ["FAIL", "RUNNING"]
    assert registry.study.trials[0].user_attrs["stop_cause"] == "the storage lost its end"


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


def test_a_trial_whose_end_the_study_lost_can_be_told_it_again(storage):
    first = open_registry(storage)
    asked(first, "a", "b")
    first.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry = open_registry(InMemoryStorage(), first.state.copy())
    registry.reconcile({"a", "b"}, {"a": {"x": 0.25}, "b": {"x": 0.75}})
    assert registry.reopen_unfinished({"a"}) == ["a"]
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry.close_lost_trials()
    assert states(registry) == ["COMPLETE", "RUNNING"]


@pytest.mark.parametrize("config", [{"y": 7.0}, {"x": 7.0}], ids=["unknown", "out of range"])
def test_a_lost_trial_whose_config_left_the_space_is_made_without_it(storage, config):
    first = open_registry(storage)
    asked(first, "a")
    registry = open_registry(InMemoryStorage(), first.state.copy())
    registry.reconcile({"a"}, {"a": config})
    assert registry.study.trials[0].params == {}


def test_a_trial_that_neither_the_page_nor_the_study_knows_is_made_anew(storage):
    """As of a trial that began after the last state was saved, in a study that lost its end."""
    first = open_registry(storage)
    asked(first, "a")
    registry = open_registry(storage, first.state.copy())
    registry.reconcile({"a", "b"}, {"a": {"x": 0.25}, "b": {"x": 0.75}})
    assert registry.study.trials[1].params == {"x": 0.75}
    assert registry.record("b").number == 1


def test_a_trial_that_the_study_kept_half_of_is_whole_again(storage):
    """As after a loss of power in the middle of what was written when it was asked for."""
    first = open_registry(storage)
    asked(first, "a", "b")
    other = InMemoryStorage()
    study = open_study(other, "s", SearchCriteria((Objective("loss", "min"),)))
    study.add_trial(first.study.trials[0])
    study.ask()
    registry = open_registry(other, first.state.copy())
    registry.reconcile({"a", "b"}, {"a": {"x": 0.25}, "b": {"x": 0.75}})
    last = registry.study.trials[1]
    assert (last.params, last.user_attrs) == ({"x": 0.75}, {"tune_trial_id": "b"})
