"""The MLflow callback of a sweep that goes on, or is begun again."""

import pickle
import threading

import pytest
from hooks import complete, report, start
from store import Store

from tune_tf.outcome import Outcome


def test_a_resumed_sweep_goes_on_in_its_runs(callback_of, trial_of, client):
    first = callback_of()
    first.setup()
    trial = trial_of("t1")
    start(first, trial)
    report(first, trial, 1)
    first.flush()
    state = pickle.loads(pickle.dumps(first.get_state()))
    first.on_experiment_end([trial])

    second = callback_of()
    second.set_state(state)
    second.setup()
    trial = trial_of("t1", last_result=trial.last_result)
    complete(second, trial, 2)
    second.on_experiment_end([trial])

    store = Store(client)
    assert second.parent_run_id == first.parent_run_id == store.parent.info.run_id
    assert store.states("rate") == {"1.0": ("KILLED", "pruned")}
    assert store.parent.data.metrics["trials/pruned"] == 1.0
    assert store.parent.data.metrics["trials/interrupted"] == 0.0
    assert [step for step, _ in store.points(store.children[0], "val_accuracy")] == [1, 2]
    assert store.parent.info.status == "FINISHED"


def test_a_trial_that_is_ended_before_it_goes_on_has_that_end(callback_of, trial_of, client):
    """As by `stop --end` right after a resume, of a trial that had not reported yet."""
    first = callback_of()
    first.setup()
    begun = trial_of("begun")
    start(first, begun)
    state = first.get_state()
    first.on_experiment_end([begun])
    assert Store(client).states("rate") == {"1.0": ("KILLED", "interrupted")}

    second = callback_of()
    second.set_state(state)
    second.outcome_tracker.restore_outcomes({}, {"begun"})
    second.setup()
    begun, never = trial_of("begun"), trial_of("never", 2.0)
    second.on_step_end(0, [begun, never])
    for trial in (begun, never):
        trial.set_status("TERMINATED")
    second.on_step_end(1, [begun, never])
    second.on_experiment_end([begun, never])
    assert Store(client).states("rate") == {"1.0": ("KILLED", "out_of_budget")}


@pytest.mark.parametrize("saved", ["nothing", "a start", "a result"])
def test_a_resume_with_nothing_left_to_run_settles_every_trial(
    callback_of, trial_of, client, saved
):
    """Tune makes no step then, and calls nothing but the first hook and the last."""
    first = callback_of()
    first.setup()
    states = {"nothing": first.get_state()}
    good, bad, silent = trial_of("good", 3.0), trial_of("bad", 2.0), trial_of("silent", 1.0)
    start(first, good, bad, silent)
    states["a start"] = first.get_state()
    for trial in (good, bad):
        report(first, trial, 1, done=True)
    states["a result"] = first.get_state()
    first.flush()  # and then the process is killed

    second = callback_of()
    second.set_state(states[saved])
    ended = {"good": Outcome.COMPLETED, "bad": Outcome.PRUNED, "silent": Outcome.DIVERGED}
    second.outcome_tracker.restore_outcomes({**ended, "never": Outcome.OUT_OF_BUDGET}, ended.keys())
    second.setup()
    trials = [
        trial_of(trial.trial_id, trial.config["rate"], outcome.tune, trial.last_result)
        for trial, outcome in zip((good, bad, silent), ended.values(), strict=True)
    ]
    trials.append(trial_of("never", 4.0, "TERMINATED"))
    second.on_experiment_end(trials)

    store = Store(client)
    assert second.outcome_tracker.outcomes == {**ended, "never": Outcome.OUT_OF_BUDGET}
    assert second.run_ids() == {
        run.data.tags["tune_tf.trial_id"]: run.info.run_id for run in store.children
    }
    assert store.states("rate") == {
        "3.0": ("FINISHED", "completed"),
        "2.0": ("KILLED", "pruned"),
        "1.0": ("FAILED", "diverged"),
    }
    assert store.parent.info.status == "FINISHED"
    assert store.parent.data.tags["tune_tf.best_trial_id"] == "good"


def test_what_a_killed_driver_had_not_written_is_written_by_the_resume(
    callback_of, trial_of, client, monkeypatch
):
    first = callback_of()
    first.setup()
    over, going = trial_of("over"), trial_of("going", 2.0)
    start(first, over, going)
    report(first, over, 1)
    first.flush()
    gate = threading.Event()
    hang = "tune_tf.tracking.runs.SweepRuns.write"
    monkeypatch.setattr(hang, lambda runs, entry: gate.wait())
    for trial in (over, going):
        report(first, trial, 2)
    over.run_metadata.last_result["done"] = True
    first.on_trial_complete(1, [over, going], over)
    over.set_status("TERMINATED")
    state = pickle.loads(pickle.dumps(first.get_state()))  # and then the process is killed
    monkeypatch.undo()

    second = callback_of()
    second.set_state(state)
    second.setup()
    start(second, going)
    report(second, going, 3)
    going.run_metadata.last_result["done"] = True
    second.on_trial_complete(1, [over, going], going)
    going.set_status("TERMINATED")
    second.on_experiment_end([over, going])
    gate.set()

    store = Store(client)
    assert set(store.states("rate").values()) == {("FINISHED", "completed")}
    assert [step for step, _ in store.points(store.child(rate=1.0), "val_accuracy")] == [1, 2]
    assert [step for step, _ in store.points(store.child(rate=2.0), "val_accuracy")] == [2, 3]


def test_the_same_sweep_id_in_a_new_process_reopens_the_parent(callback_of, client):
    for _ in range(2):
        callback = callback_of(sweep_id="s1")
        callback.setup()
        callback.on_experiment_end([])
    assert Store(client).parent.data.tags["tune_tf.sweep_id"] == "s1"


def test_a_sweep_that_is_interrupted_between_two_trials_is_interrupted(
    callback_of, trial_of, client, monkeypatch
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    complete(callback, trial)
    monkeypatch.setattr("tune_tf.tracking.parent_run.asks_for_more", lambda: True)
    callback.on_experiment_end([trial])
    assert Store(client).parent.info.status == "KILLED"
