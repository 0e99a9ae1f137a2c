"""Tests of the trial registry against a real study, without Ray."""

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


@pytest.fixture
def storage():
    return InMemoryStorage()


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


def test_what_tune_showed_last_is_noted(storage):
    registry = open_registry(storage)
    asked(registry, "a")
    assert registry.record("a").seen is None
    registry.note_result("a", 3)
    assert registry.record("a").seen == 3


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


def test_a_trial_stopped_before_its_first_result_fails_rather_than_count_as_bad(storage):
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


def test_a_config_that_changes_again_counts_as_changed_since_the_first_time(storage):
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


def test_trials_asked_for_after_the_last_save_are_handed_out_again_in_order(storage):
    first = open_registry(storage)
    asked(first, "a")
    saved = first.state.copy()
    lost = asked(first, "b", "c", "d")
    first.report("c", 1, 0.5)
    first.tell("b", TrialOutcome(Outcome.COMPLETED, 0.5, 1))  # finished, and lost all the same
    registry = open_registry(storage, saved)
    assert registry.reconcile() == 4
    again = [registry.ask(tune_id) for tune_id in ("B", "C", "D")]
    assert again == lost
    assert [trial.user_attrs["tune_trial_id"] for trial in registry.study.trials] == list("abCD")
    registry.ask("E")
    for tune_id in "aBCDE":
        registry.report(tune_id, 1, 0.25)
        registry.tell(tune_id, TrialOutcome(Outcome.COMPLETED, 0.125, 2))
    assert states(registry) == ["COMPLETE"] * 5
    assert [trial.value for trial in registry.study.trials] == [0.125, 0.5, 0.125, 0.125, 0.125]
    assert registry.study.trials[2].intermediate_values == {1: 0.5, 2: 0.125}


def test_a_trial_that_ended_unsaved_and_runs_again_is_linked_to_the_new_one(storage):
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


def test_a_trial_that_was_killed_before_it_had_all_its_parameters_gets_the_rest(storage):
    first = open_registry(storage)
    first.reconcile()
    first.study.ask()  # killed here: no parameter, no link
    registry = open_registry(storage)
    assert registry.reconcile() == 1
    assert set(registry.ask("a")) == {"x", "fixed"}
    assert len(registry.study.trials) == 1
    assert registry.study.trials[0].user_attrs["tune_trial_id"] == "a"


def test_a_new_book_takes_up_running_trials_and_leaves_finished_ones(storage):
    first = open_registry(storage)
    _, running = asked(first, "a", "b")
    first.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    registry = open_registry(storage)
    assert registry.reconcile() == 2
    assert registry.ask("c") == running
    registry.ask("d")
    assert states(registry) == ["COMPLETE", "RUNNING", "RUNNING"]


def test_a_resume_does_not_hand_out_trials_of_an_earlier_sweep(storage):
    earlier = open_registry(storage)
    asked(earlier, "a")
    earlier.tell("a", TrialOutcome(Outcome.COMPLETED, 0.5, 1))
    saved = open_registry(storage).state.copy()
    registry = open_registry(storage, saved)
    assert registry.reconcile() == 1
    assert registry.state.orphans == []


def test_nothing_lost_means_nothing_to_draw_anew(storage):
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


def test_trials_that_the_user_enqueued_come_first(storage):
    registry = open_registry(storage)
    registry.study.enqueue_trial({"x": 0.75})
    assert asked(registry, "a") == [{"x": 0.75, "fixed": 3}]


def test_orphans_that_no_trial_takes_up_get_an_end(storage):
    first = open_registry(storage)
    saved = first.state.copy()
    asked(first, "a", "b")
    registry = open_registry(storage, saved)
    asked(registry, "A")
    registry.abandon_orphans()
    assert states(registry) == ["RUNNING", "FAIL"]
    assert registry.study.trials[1].user_attrs["stop_cause"] == "never resumed"


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


def test_a_running_trial_whose_config_was_changed_keeps_the_one_that_optuna_drew(storage):
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
