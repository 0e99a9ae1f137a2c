"""The MLflow callback, its hooks driven by hand."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from store import Store

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError
from tune_tf.outcome import STOP_REASON, Outcome

pytestmark = pytest.mark.ray


def test_importing_and_setting_up_do_not_load_mlflow(tmp_path):
    code = (
        "import sys, tune_tf.tracking as t; assert 'ray' not in sys.modules; t.MLflowCallback;"
        "assert not any(name.split('.')[0] in ('mlflow', 'tensorflow') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=_environment())


def _environment():
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root}


def test_a_callback_not_yet_started_can_be_copied_and_pickled(callback_of):
    callback = callback_of(sweep_id="s1")
    assert copy.deepcopy(callback).sweep_id == "s1"
    assert pickle.loads(pickle.dumps(callback)).sweep_id == "s1"


def test_a_tracking_uri_that_cannot_work_is_refused_at_once():
    from tune_tf.tracking import MLflowCallback

    with pytest.raises(InvalidSettingsError, match="scheme 'redis'"):
        MLflowCallback("redis://host")


@pytest.fixture
def trial_of(tmp_path):
    """Make Tune's own trial, without a trainable."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    def trial_of(trial_id, rate=1.0, status="RUNNING", last_result=None):
        storage = StorageContext(str(tmp_path / "ray"), "exp")
        trial = Trial(
            "scripted", stub=True, trial_id=trial_id, config={"rate": rate}, storage=storage
        )
        trial.set_status(status)
        trial.run_metadata.last_result = last_result or {}
        return trial

    return trial_of


def report(callback, trial, step, **more):
    result = {"val_accuracy": trial.config["rate"] * step, "training_iteration": step, **more}
    result = {"done": False, "time_total_s": float(step), **result}
    callback.on_trial_result(1, [trial], trial, result)
    trial.run_metadata.last_result = result
    return result


def start(callback, *trials):
    for trial in trials:
        callback.on_trial_start(1, list(trials), trial)


def test_an_interrupted_sweep_leaves_no_run_running(callback_of, trial_of, client):
    callback = callback_of()
    callback.setup()
    trials = [trial_of("running"), trial_of("stopped"), trial_of("waiting", status="PENDING")]
    start(callback, *trials[:2])
    report(callback, trials[0], 1)
    trials[1].set_status("TERMINATED")  # as Tune's own cleaning up does
    callback.on_experiment_end(trials)
    callback.on_experiment_end(trials)
    store = Store(client)
    reasons = {run.data.tags["tune_tf.stop_reason"] for run in store.children}
    assert (len(store.children), reasons) == (2, {"interrupted"})
    assert {run.info.status for run in store.children} == {"KILLED"}
    assert store.parent.info.status == "KILLED"
    assert store.parent.data.params == {}


def test_a_sweep_interrupted_while_its_trials_were_starting_is_killed(
    callback_of, trial_of, client
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("starting", status="PENDING")
    callback.on_step_end(1, [trial])
    trial.set_status("TERMINATED")  # as Tune's own cleaning up does
    callback.on_experiment_end([trial])
    store = Store(client)
    assert (store.parent.info.status, store.children) == ("KILLED", [])


def test_a_trial_that_the_time_budget_ended_before_it_started_has_no_run(
    callback_of, trial_of, client
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("starting", status="PENDING")
    callback.on_step_end(1, [trial])
    trial.set_status("TERMINATED")
    callback.on_step_end(2, [trial])
    callback.on_experiment_end([trial])
    store = Store(client)
    assert callback.outcomes == {"starting": Outcome.OUT_OF_BUDGET}
    assert (store.parent.info.status, store.children) == ("FINISHED", [])


def test_a_stamp_that_is_there_is_kept(callback_of, trial_of):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    result = report(callback, trial, 1, done=True, **{STOP_REASON: "diverged"})
    callback.on_experiment_end([trial])
    assert result[STOP_REASON] == "diverged"


def test_a_result_carries_the_id_of_its_run_to_the_searcher(callback_of, trial_of, client):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    callback.flush()
    result = report(callback, trial, 1, done=True)
    callback.on_experiment_end([trial])
    (child,) = Store(client).children
    assert result["mlflow_run_id"] == child.info.run_id


def test_an_infeasible_trial_is_tagged_and_never_the_best(callback_of, trial_of, client):
    callback = callback_of(constraints=[Constraint("val_accuracy", "<=", 2.0)])
    callback.setup()
    small, large = trial_of("small", 1.0), trial_of("large", 3.0)
    start(callback, small, large)
    for trial in (small, large):
        report(callback, trial, 1, done=True)
        callback.on_trial_complete(1, [small, large], trial)
    state = pickle.loads(pickle.dumps(callback.get_state()))
    for trial in (small, large):
        trial.set_status("TERMINATED")
    callback.on_experiment_end([small, large])

    store = Store(client)
    assert store.child(rate=3.0).data.tags["tune_tf.feasible"] == "false"
    assert store.child(rate=1.0).data.tags["tune_tf.feasible"] == "true"
    assert store.parent.data.metrics["best/val_accuracy"] == 1.0
    assert [each[-1] for each in state["standing"]["candidates"]] == [True, False]


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
    start(second, trial)
    report(second, trial, 2, done=True)
    second.on_trial_complete(1, [trial], trial)
    trial.set_status("TERMINATED")
    second.on_experiment_end([trial])

    store = Store(client)
    assert second.parent_run_id == first.parent_run_id == store.parent.info.run_id
    assert store.states("rate") == {"1.0": ("KILLED", "pruned")}
    assert store.parent.data.metrics["trials/pruned"] == 1.0
    assert store.parent.data.metrics["trials/interrupted"] == 0.0
    assert [step for step, _ in store.points(store.children[0], "val_accuracy")] == [1, 2]
    assert store.parent.info.status == "FINISHED"


def test_after_a_kill_with_a_stale_state_every_trial_has_one_run(callback_of, trial_of, client):
    first = callback_of()
    first.setup()
    old, late, lost = trial_of("old"), trial_of("late", 2.0), trial_of("lost", 3.0)
    start(first, old)
    report(first, old, 1)
    stale = first.get_state()
    start(first, late, lost)
    for trial in (old, late, lost):
        report(first, trial, 2)
    first.flush()  # and then the process is killed: no hook is called any more

    second = callback_of()
    second.set_state(stale)
    second.setup()
    old, late = trial_of("old", last_result={"training_iteration": 1}), trial_of("late", 2.0)
    start(second, old, late)
    for trial in (old, late):
        for step in (2, 3):
            report(second, trial, step)
        trial.run_metadata.last_result["done"] = True
        second.on_trial_complete(1, [old, late], trial)
        trial.set_status("TERMINATED")
    second.on_experiment_end([old, late])

    store = Store(client)
    assert store.states("rate") == {
        "1.0": ("FINISHED", "completed"),
        "2.0": ("FINISHED", "completed"),
    }
    assert [step for step, _ in store.points(store.child(rate=1.0), "val_accuracy")] == [1, 2, 3]
    assert [step for step, _ in store.points(store.child(rate=2.0), "val_accuracy")] == [2, 3]
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


def test_a_second_sweep_with_the_same_callback_has_its_own_runs(callback_of, client):
    callback = callback_of()
    for _ in range(2):
        callback.setup()
        callback.on_experiment_end([])
    assert len(Store(client).parents) == 2


def test_a_store_that_cannot_be_opened_does_not_end_the_sweep(
    callback_of, trial_of, caplog, monkeypatch
):
    from tune_tf.tracking import outbox as module

    monkeypatch.setattr(module, "connect", _unreachable)
    monkeypatch.setattr(module, "Writer", _hasty(module.Writer))
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    report(callback, trial, 1)
    callback.on_experiment_end([trial])
    assert "training goes on: no route to host" in caplog.text
    assert "values could not be written to MLflow" in caplog.text


def _hasty(writer_class):
    def writer(open_sink, spool):
        return writer_class(open_sink, spool, linger_s=0.0, delays_s=(0.0,), patience_s=0.0)

    return writer


def test_files_are_attached_to_the_parent_of_a_sweep_that_has_ended(
    callback_of, trial_of, client, tmp_path
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    report(callback, trial, 1, done=True)
    callback.on_trial_complete(1, [trial], trial)
    trial.set_status("TERMINATED")
    callback.on_experiment_end([trial])
    page = tmp_path / "page.html"
    page.write_text("<p>all of it</p>")
    ended = Store(client).parent.info

    callback.attach({"report/report.html": page}, tags={"seen": "yes"}, metrics={"report/s": 2.0})

    parent = Store(client).parent
    assert (parent.info.status, parent.info.end_time) == ("FINISHED", ended.end_time)
    assert parent.data.tags["seen"] == "yes"
    assert parent.data.metrics["report/s"] == 2.0
    path = client.download_artifacts(parent.info.run_id, "report/report.html", str(tmp_path))
    assert Path(path).read_text() == "<p>all of it</p>"
    assert len(Store(client).children) == 1


def test_what_cannot_be_attached_is_a_warning(callback_of, caplog, monkeypatch, tmp_path):
    from tune_tf.tracking import outbox

    callback = callback_of()
    callback.setup()
    callback.on_experiment_end([])
    monkeypatch.setattr(outbox, "connect", _unreachable)
    monkeypatch.setattr(outbox, "Writer", _hasty(outbox.Writer))
    callback.attach({"page.html": tmp_path / "page.html"})
    assert "no route to host" in caplog.text


def _unreachable(uri):
    raise ConnectionError("no route to host")


def test_a_value_that_is_too_long_is_cut_and_kept_whole_as_an_artifact(
    callback_of, trial_of, client, tmp_path
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    trial.config["layers"] = "x" * 7000
    start(callback, trial)
    callback.on_experiment_end([trial])
    (child,) = Store(client).children
    assert len(child.data.params["layers"]) == 6000
    path = client.download_artifacts(child.info.run_id, "params/layers.txt", str(tmp_path))
    assert Path(path).read_text() == "x" * 7000


def test_a_child_tells_its_node_code_rung_and_end(callback_of, trial_of, client):
    from tune_tf.tracking import SweepDetails

    callback = callback_of(details=SweepDetails(rungs=lambda: (1, 3)))
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    for step in (1, 2):
        report(callback, trial, step, hostname="gpu-1", node_ip="10.0.0.7")
    callback.on_trial_complete(1, [trial], trial)
    trial.set_status("TERMINATED")
    callback.on_experiment_end([trial])
    tags = Store(client).children[0].data.tags
    assert tags["tune_tf.node"] == "gpu-1 10.0.0.7"
    assert tags["tune_tf.rung"] == "1"
    assert tags["mlflow.note.content"].startswith("**Stopped early by the scheduler")
    assert "Best `val_accuracy`: **2** at iteration 2." in tags["mlflow.note.content"]


def test_the_parent_shows_how_the_sweep_stands_while_it_runs(callback_of, trial_of, client):
    callback = callback_of()
    callback.setup()
    first, second = trial_of("first", 2.0), trial_of("second", 1.0)
    start(callback, first, second)
    report(callback, first, 1, done=True, **{STOP_REASON: "completed"})
    callback.on_trial_complete(1, [first, second], first)
    assert callback.flush(60)
    parent = Store(client).parent
    callback.on_experiment_end([first, second])
    assert parent.info.status == "RUNNING"
    assert parent.data.metrics == {
        "best/val_accuracy": 2.0,
        "trials/completed": 1.0,
        "trials/ended": 1.0,
    }
    assert parent.data.tags["tune_tf.best_config"] == '{"rate": 2.0}'
    assert (
        "running.** Maximizes `val_accuracy`. 1 trial (1 completed)"
        in (parent.data.tags["mlflow.note.content"])
    )


def test_the_environment_is_kept_once_and_again_where_a_resume_differs(
    callback_of, client, monkeypatch
):
    from tune_tf.tracking import environment

    states, folders = [{}], []
    for packages in ("a==1\n", "a==1\n", "a==2\n"):
        monkeypatch.setattr(environment, "packages", lambda text=packages: text)
        callback = callback_of(sweep_id="s1")
        callback.set_state(states[-1])
        callback.setup()
        callback.on_experiment_end([])
        states.append(callback.get_state())
        run_id = Store(client).parent.info.run_id
        found = client.list_artifacts(run_id, "environment")
        folders.append([file.path for file in found if file.is_dir])
    assert folders[0] == folders[1] == []
    (resumed,) = folders[2]
    path = client.download_artifacts(run_id, f"{resumed}/packages.txt")
    assert Path(path).read_text() == "a==2\n"


ODD_NAMES = {
    "long": "x" * 500,
    "slashes": "../../a/b\\c",
    "emoji": "🦒 größe\u202e",
    "quotes": 'it\'s "so" `odd` %s {0} ;--',
    "leading dot": ".hidden",
    "line breaks": "a\nb\tc",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=list(ODD_NAMES))
def test_any_name_of_a_sweep_gives_a_run_and_its_files(callback_of, trial_of, client, name):
    callback = callback_of(sweep_name=name)
    callback.setup()
    trial = trial_of("t1")
    trial.config[name] = "v" * 7000
    start(callback, trial)
    report(callback, trial, 1, **{name: 1.0})
    callback.on_experiment_end([trial])
    store = Store(client)
    assert store.parent.info.run_name.isprintable()
    assert 0 < len(store.parent.info.run_name) <= 250
    (child,) = store.children
    assert len(child.data.params) == 2
    assert len(child.data.metrics) == 3
    assert len(client.list_artifacts(child.info.run_id, "params")) == 1


@pytest.mark.parametrize("name", ["", "x" * 257, "two\nlines", " padded"])
def test_a_name_that_no_experiment_can_have_is_refused(name):
    from tune_tf.tracking import MLflowCallback

    with pytest.raises(InvalidSettingsError, match="experiment_name must be 1 to 256 characters"):
        MLflowCallback("sqlite:///mlflow.db", name)
