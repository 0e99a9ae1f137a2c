"""The MLflow callback of a sweep that goes on, or is begun again."""

import pickle
import threading

from hooks import complete, report, start
from store import Store


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
