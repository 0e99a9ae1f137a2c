"""A driver that is killed at a moment of the sweep that is named, and one resume.

One of the moments runs with the other tests and two with the slow ones, as a check of the
simulation of the driver, which kills anywhere; ``make kills`` runs them all.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kill_moments import FAILS, IS_PRUNED, MOMENTS, NUM_TRIALS
from three_systems import assert_truth, parent_run, study_of
from tracking_server import TrackingServer

from tune_tf.events import EventHistory
from tune_tf.outcome import Outcome
from tune_tf.sweep.sweep_result import finished_result
from tune_tf.sweep_folder import SweepFolder

pytestmark = [pytest.mark.cluster, pytest.mark.mlflow, pytest.mark.timeout(2400)]

DRIVER = Path(__file__).with_name("kill_moments.py")
SWEEP = """\
name: tiny
workload: tune_tf.workloads.digits:DigitsMLP
objective: {{metric: val_accuracy, mode: max}}
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  width:         {{choice: [16, 32]}}
  batch_size:    64
seed: 3
searcher: {{sampler: random, seed: 5}}
scheduler: {{name: asha, max_t: 3, grace_period: 1, reduction_factor: 3}}
resources: {{cpus: 1}}
max_concurrent_trials: 1
checkpoint_interval_s: 0
budget: {{num_samples: {num_trials}}}
mlflow: {{register_best: tiny, tracking_uri: "{tracking_uri}"}}
storage_path: {root}/sweeps
"""
REAL_KILLS = (
    "after the last end",
    "the report is half written",
    "the version is made and has no alias",
)


@pytest.fixture
def sweep_file(tmp_path, empty_store):
    """A sweep of four trials beside a store that is made already."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return write_sweep(tmp_path, "sqlite:///mlflow.db")


def write_sweep(root, tracking_uri):
    path = root / "tiny.yaml"
    path.write_text(SWEEP.format(root=root, num_trials=NUM_TRIALS, tracking_uri=tracking_uri))
    return path


def drive(root, *arguments, at="", blow="SIGKILL"):
    """Run a verb that gets a signal at a moment; return its exit code and what it printed."""
    if arguments[0] == "run":
        arguments += ("--no-check",)
    done = subprocess.run(
        [sys.executable, str(DRIVER), at, blow, *map(str, arguments)],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return done.returncode, done.stdout, done.stderr


def folder_of(sweep_file):
    (folder,) = sweep_file.parent.glob("sweeps/tiny-*")
    return folder


def assert_settled(folder, result):
    """Assert that a sweep has come to its end, and stands in one way wherever it stands."""
    trials = assert_truth(folder)
    assert len(trials) == NUM_TRIALS == len(study_of(folder).trials)
    assert {trial.reason for trial in trials.values()} == set(result["trials"])
    assert sum(result["trials"].values()) == NUM_TRIALS
    parent = parent_run(folder)
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["tune_tf.best_trial_id"] == result["best"]["trial_id"]
    assert parent.data.tags["tune_tf.best_checkpoint"] == result["best"]["checkpoint"]
    assert Path(result["best"]["checkpoint"]).is_dir()
    counts = {each.value: parent.data.metrics.get(f"trials/{each.value}", 0) for each in Outcome}
    assert {name: count for name, count in counts.items() if count} == result["trials"]
    assert_one_best_model(folder, parent, result)
    assert_whole_report(folder, parent)
    sessions = EventHistory.read(folder).sessions
    assert (sessions[-1].ended_cleanly, sessions[-1].interrupted, sessions[-1].missing_outputs) == (
        True,
        False,
        (),
    )
    settled = finished_result(SweepFolder.open(folder))
    assert settled is not None
    assert {trial.number: trial.iterations for trial in settled.trials} == {
        trial.number: trials[trial.trial_id].steps[-1] for trial in settled.trials
    }
    assert str(settled.best_trial.checkpoint) == result["best"]["checkpoint"]
    assert not list(folder.glob(".best_model.*"))
    assert not (folder / "mlflow-spool").exists()


def store_of(folder):
    from mlflow import MlflowClient

    return MlflowClient(SweepFolder.open(folder).tracking_uri)


def assert_one_best_model(folder, parent, result):
    client = store_of(folder)
    model = client.get_logged_model(parent.data.tags["tune_tf.best_model"].rpartition("/")[2])
    assert str(model.status) == "READY"
    (version,) = client.search_model_versions("name='tiny'")
    assert version.source == f"models:/{model.model_id}"
    assert client.get_model_version_by_alias("tiny", "champion").version == version.version
    named = (version.source, f"models:/tiny/{version.version}")
    for run in (parent, client.get_run(model.tags["tune_tf.trial_run_id"])):
        tags = run.data.tags
        assert (tags["tune_tf.best_model"], tags["tune_tf.best_model_version"]) == named
        assert len(client.get_metric_history(run.info.run_id, "test_loss")) == 1
    assert model.tags["tune_tf.trial_id"] == result["best"]["trial_id"]
    assert model.model_id in [each.model_id for each in parent.outputs.model_outputs]
    files = {file.path for file in client.list_logged_model_artifacts(model.model_id)}
    assert {"MLmodel", "data"} <= files


def assert_whole_report(folder, parent):
    from mlflow.artifacts import download_artifacts

    report = folder / "report"
    page = (report / "report.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert not list(report.rglob(".*"))
    uri = store_of(folder).tracking_uri
    stored = download_artifacts(
        run_id=parent.info.run_id, artifact_path="report.html", tracking_uri=uri
    )
    assert Path(stored).read_text() == page


def moments(names, *marks):
    return [pytest.param(name, marks=marks, id=name) for name in names]


@pytest.mark.parametrize(
    "moment",
    [
        *moments(REAL_KILLS, pytest.mark.slow),
        *moments((name for name in MOMENTS if name not in REAL_KILLS), pytest.mark.long),
    ],
)
def test_one_resume_settles_a_sweep_killed(moment, sweep_file, verb):
    code, _, err = drive(sweep_file.parent, "run", sweep_file, at=moment)
    assert code == -signal.SIGKILL, err
    folder = folder_of(sweep_file)
    code, out, err = drive(folder, "resume", folder, "--json")

    assert code == 0, err
    assert_settled(folder, json.loads(out))
    assert_left_alone(folder, json.loads(out), verb)


def assert_left_alone(folder, result, verb):
    """Assert that another resume says that there is nothing to do, and does nothing."""
    before = contents_of(folder.parents[1])
    code, out, err = verb("resume", str(folder), "--json", cwd=folder)
    assert code == 0, err
    assert "has ended: there is nothing to resume" in err
    assert json.loads(out) == result
    assert contents_of(folder.parents[1]) == before


def contents_of(root):
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    [
        "before Tune's last state",
        "after Tune's last state",
        "the queue is half drained",
        "before the study is settled",
        "after the last snapshot",
        "the report is half written",
        "before the event log is closed",
    ],
)
def test_a_resume_that_is_killed_itself_is_followed_by_one_that_settles(moment, sweep_file):
    root = sweep_file.parent
    assert drive(root, "run", sweep_file, at="after the last end")[0] == -signal.SIGKILL
    folder = folder_of(sweep_file)
    assert drive(root, "resume", folder, at=moment)[0] == -signal.SIGKILL
    code, out, err = drive(root, "resume", folder, "--json")

    assert code == 0, err
    assert_settled(folder, json.loads(out))


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    [
        "after the last end",
        "after Tune's last state",
        "the parent's end is put and not written",
        "after tune.run",
        "while the plots are drawn",
        "while the best model's process writes",
        "before the event log is closed",
    ],
)
def test_an_interrupt_at_the_end_of_a_sweep_costs_nothing(moment, sweep_file):
    root = sweep_file.parent
    code, _, err = drive(root, "run", sweep_file, at=moment, blow="SIGINT")
    assert code in (0, 130), err
    folder = folder_of(sweep_file)
    code, out, err = drive(root, "resume", folder, "--json")

    assert code == 0, err
    assert_settled(folder, json.loads(out))


@pytest.mark.long
def test_what_a_store_has_not_taken_at_the_end_is_delivered_by_a_resume(tmp_path, empty_store):
    server = TrackingServer(tmp_path, empty_store)
    server.database.rename(tmp_path / "mlflow.db")
    server.database = tmp_path / "mlflow.db"  # where the others look
    sweep_file = write_sweep(tmp_path, server.uri)
    server.start()
    try:
        code, _, err = drive(tmp_path, "run", sweep_file, at="after the last end")
        assert code == -signal.SIGKILL, err
        folder = folder_of(sweep_file)
        server.kill()
        code, _, err = drive(tmp_path, "resume", folder)
        assert code == 0, err
        assert "not been written to MLflow" in err
        assert "The best model was not logged" in err
        server.start()
        code, out, err = drive(tmp_path, "resume", folder, "--json")
        assert code == 0, err
        assert_settled(folder, json.loads(out))
    finally:
        server.kill()


@pytest.mark.long
@pytest.mark.parametrize(("batch_size", "outcome"), [(FAILS, "error"), (IS_PRUNED, "pruned")])
@pytest.mark.parametrize("moment", ["after the last end", "before the event log is closed"])
def test_a_sweep_without_a_completed_trial_is_settled_as_that(
    moment, batch_size, outcome, sweep_file
):
    root = sweep_file.parent
    settings = ("--set", f"space.batch_size={batch_size}")
    code, _, err = drive(root, "run", sweep_file, *settings, at=moment)
    assert code == -signal.SIGKILL, err
    folder = folder_of(sweep_file)
    for _ in range(2):
        code, out, err = drive(root, "resume", folder, "--json")
        assert code == 1, err
        assert json.loads(out)["trials"] == {outcome: NUM_TRIALS}
        assert {trial.reason for trial in assert_truth(folder).values()} == {outcome}
        status = "FAILED" if outcome == "error" else "FINISHED"
        assert parent_run(folder).info.status == status
    assert "there is nothing to resume" in err
