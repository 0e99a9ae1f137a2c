"""Trials that a resumed registry proposes again, links again or leaves alone."""

import optuna
from registries import asked, open_registry, states

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_attrs import tune_trial_id
from tune_tf.searchers.trial_outcome import TrialOutcome
from tune_tf.searchers.trial_registry import TrialRegistry


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


def test_a_second_kill_amid_the_handing_out_loses_nothing(storage):
    first = open_registry(storage)
    saved = first.state.copy()
    lost = asked(first, "a", "b", "c")
    first.tell("c", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    second = open_registry(storage, saved)
    asked(second, "A")
    saved = second.state.copy()
    third = open_registry(storage, saved)
    assert third.reconcile() is None  # all of them are on the page
    assert [third.ask(tune_id) for tune_id in ("BB", "CC")] == lost[1:]
    assert len(third.study.trials) == 3


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


def test_reconcile_without_lost_trials_draws_nothing_anew(storage):
    first = open_registry(storage)
    asked(first, "a", "b")
    assert open_registry(storage, first.state.copy()).reconcile() is None


def test_a_trial_that_tune_saved_and_the_book_did_not_is_linked_again(storage):
    first = open_registry(storage)
    saved = first.state.copy()
    asked(first, "a", "b")
    registry = open_registry(storage, saved)
    assert registry.reconcile({"a"}) == 2
    assert registry.state.orphans == [1]
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    assert states(registry) == ["COMPLETE", "RUNNING"]


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


def test_trials_that_wait_to_be_asked_for_are_not_known_yet(storage):
    registry = open_registry(storage)
    registry.study.enqueue_trial({"x": 0.75})
    registry.reconcile()
    saved = registry.state.copy()
    assert saved.num_known == 0
    asked(registry, "a")
    registry.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    again = open_registry(storage, saved)
    again.reconcile()
    assert again.ask("A") == {"x": 0.75, "fixed": 3}


def test_evaluated_trials_of_elsewhere_are_neither_orphans_nor_draws(storage):
    registry = open_registry(storage)
    registry.study.add_trial(
        optuna.trial.create_trial(value=0.5, user_attrs={"warm_start": "x", "tune_trial_id": "a"})
    )
    assert registry.reconcile({"a"}) is None
    assert registry.state.orphans == []


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
