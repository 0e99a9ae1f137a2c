"""What MLflow has of a sweep whose store, or whose driver, fails on the way."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import three_systems
from faulty_proxy import FaultyProxy
from tracking_server import TrackingServer

from tune_tf.tracking.writing.spool import SPOOL_FOLDER

pytestmark = [pytest.mark.cluster, pytest.mark.mlflow]

ROOT = Path(__file__).parents[2]
NUM_TRIALS, NUM_STEPS = 3, 20


@pytest.fixture(scope="module")
def server(tmp_path_factory, empty_store):
    server = TrackingServer(tmp_path_factory.mktemp("server"), empty_store)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def proxy(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    proxy = FaultyProxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def patient(monkeypatch):
    """Let a sweep wait longer at its end for a store: a busy machine's is slow to come back."""
    monkeypatch.setattr("tune_tf.tracking.writing.writer._PATIENCE_S", 120.0)


def trainable():
    from ray import tune

    class Scripted(tune.Trainable):
        def setup(self, config):
            self.rate = config["rate"]

        def step(self):
            return {"score": self.rate * (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir):
            return {}

        def load_checkpoint(self, checkpoint):
            pass

    return Scripted


def at_result(number, do):
    """Return a Tune callback that does something in the driver at one of the results."""
    from ray.tune import Callback

    class AtResult(Callback):
        seen = 0

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.seen += 1
            if self.seen == number:
                do()

    return AtResult()


@pytest.fixture
def sweep(ray_cluster, tmp_path, proxy):
    """Run a sweep of trials that all end by themselves, tracked through the proxy."""
    from ray import tune

    from tune_tf.objective import Objective
    from tune_tf.tracking import MLflowCallback, SweepDetails

    def sweep(*events, sweep_id=tmp_path.name):
        folder = tmp_path / sweep_id
        tracker = MLflowCallback(
            proxy.uri,
            "faults",
            objective=Objective("score", "max"),
            sweep_id=sweep_id,
            spool_path=folder / SPOOL_FOLDER,
            details=SweepDetails(texts={"about.txt": "a sweep"}),
        )
        tune.run(
            trainable(),
            config={"rate": tune.grid_search([1.0, 2.0, 3.0])},
            stop={"training_iteration": NUM_STEPS},
            callbacks=[tracker, *events],
            storage_path=str(tmp_path),
            name=sweep_id,
            verbose=0,
        )
        return folder

    return sweep


def reported(folder, key="score"):
    """Return each point that the trials reported, by their id, as Tune's own files have them."""
    points = {}
    for file in folder.glob("*/result.json"):
        for line in file.read_text().splitlines():
            result = json.loads(line)
            point = result["training_iteration"], result[key]
            points.setdefault(result["trial_id"], {})[point] = 1
    return points


def stored(database, sweep_id, key="score"):
    """Return what a server's database has: the state, tags and points of each run."""
    query = """
        select r.run_uuid, r.status, r.lifecycle_stage, t.value from runs r
        join tags s on s.run_uuid = r.run_uuid and s.key = 'tune_tf.sweep_id' and s.value = ?
        left join tags t on t.run_uuid = r.run_uuid and t.key = 'tune_tf.trial_id'
    """
    runs = {}
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        for run_id, status, stage, trial_id in connection.execute(query, (sweep_id,)):
            if stage != "active":
                continue
            assert trial_id not in runs, "two runs of one trial"
            rows = "select step, value from metrics where key = ? and run_uuid = ?"
            tags = "select key, value from tags where run_uuid = ?"
            runs[trial_id] = (
                status,
                dict(connection.execute(tags, (run_id,))),
                Counter(connection.execute(rows, (key, run_id)).fetchall()),
            )
    return runs


def assert_exact(server, folder, outcome="completed", status="FINISHED"):
    """Assert that each point that was reported stands once, in one run a trial, of one parent.

    What ran in the last moments before a kill may be unknown to Tune when it goes on, and its file
    of results lost: it runs such a trial again under another id. The first one has a run, whole,
    if it had ended, else none.
    """
    runs = stored(server.database, folder.name)
    parent = runs.pop(None)
    known = set(three_systems.in_tune(folder))
    points = {trial_id: points for trial_id, (_, _, points) in runs.items()}
    assert {trial_id: points[trial_id] for trial_id in known} == {
        trial_id: points for trial_id, points in reported(folder).items() if trial_id in known
    }
    for trial_id in set(runs) - known:
        [rate] = (value for step, value in points[trial_id] if step == 1)
        assert points[trial_id] == {(step, rate * step): 1 for step in range(1, NUM_STEPS + 1)}
    assert parent[0] == status
    ends = {(state, tags.get("tune_tf.stop_reason")) for state, tags, _ in runs.values()}
    assert ends == {(status, outcome)}
    assert not (folder / SPOOL_FOLDER).exists()
    return runs


@pytest.mark.usefixtures("patient")
def test_a_server_killed_and_started_again_has_every_point_once(sweep, server, proxy, caplog):
    caplog.set_level("INFO", "tune_tf")

    def kill():
        server.kill()
        proxy.num_failed = 0

    folder = sweep(at_result(8, kill), at_result(40, server.start))

    runs = assert_exact(server, folder)
    assert len(runs) == NUM_TRIALS
    assert all(len(points) == NUM_STEPS for _, _, points in runs.values())
    told = [r.getMessage().partition(";")[0] for r in caplog.records if "MLflow" in r.getMessage()]
    assert told in (
        [],
        ["MLflow is not available", "MLflow is available again"],
    )


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("fault", ["hang", "forget"])
def test_a_server_that_fails_for_a_while_has_every_point_once(sweep, server, proxy, fault, caplog):
    caplog.set_level("INFO", "tune_tf")

    def heal():
        proxy.wait_for_failures(2)
        proxy.become("pass")

    folder = sweep(at_result(8, lambda: proxy.become(fault)), at_result(40, heal))

    assert_exact(server, folder)
    told = [r.getMessage().partition(";")[0] for r in caplog.records if "MLflow" in r.getMessage()]
    assert told == ["MLflow is not available", "MLflow is available again"]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_with_a_third_of_all_requests_failing_there_is_one_run_a_trial(sweep, server, proxy):
    proxy.become("forget", share=1 / 3)
    folder = sweep()

    assert proxy.num_failed >= 5
    assert_exact(server, folder)


@pytest.mark.slow
def test_a_sweep_with_a_silent_store_ends_soon_and_is_delivered_later(sweep, server, proxy, caplog):
    from tune_tf.tracking.run_writer import deliver
    from tune_tf.tracking.runs import TrackedSweep

    ended_at = []

    def fail():
        proxy.become("hang")
        ended_at.append(time.monotonic())

    folder = sweep(at_result(NUM_TRIALS * NUM_STEPS - 5, fail))
    assert time.monotonic() - ended_at[0] < 240  # closing takes 300 if nobody gives up
    assert f"tune-tf sync {folder}" in caplog.text
    assert "RUNNING" in {status for status, _, _ in stored(server.database, folder.name).values()}

    proxy.become("pass")
    sweep_there = TrackedSweep(folder.name, proxy.uri, "faults")
    first, again = (
        deliver(sweep_there, folder / SPOOL_FOLDER),
        deliver(sweep_there, folder / SPOOL_FOLDER),
    )

    assert_exact(server, folder)
    assert first.num_delivered > 0
    assert (first.num_left, again.num_delivered, again.num_left) == (0, 0, 0)


DRIVER = """
import os, signal, sys
sys.path[:0] = {paths!r}
import ray
from ray import tune
from test_tracking_faults import NUM_STEPS, trainable
from killed_driver import bring_up_to_date
from tune_tf.objective import Objective
from tune_tf.tracking import MLflowCallback
from tune_tf.tracking.writing.spool import SPOOL_FOLDER

uri, folder, killed_at = sys.argv[1], sys.argv[2], int(sys.argv[3])

class DieAtResult(tune.Callback):
    seen = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.seen += 1
        if self.seen == killed_at:
            bring_up_to_date(trial)
            os.kill(os.getpid(), signal.SIGKILL)

storage, name = os.path.split(folder)
ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
tracker = MLflowCallback(
    uri, "faults", objective=Objective("score", "max"), sweep_id=name,
    spool_path=os.path.join(folder, SPOOL_FOLDER),
)
tune.run(
    trainable(),
    config={{"rate": tune.grid_search([1.0, 2.0, 3.0])}},
    stop={{"training_iteration": NUM_STEPS}},
    callbacks=[tracker, DieAtResult()],
    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=4),
    storage_path=storage, name=name, verbose=0, resume="AUTO",
)
"""


def drive(uri, folder, killed_at, timeout_s=240):
    code = DRIVER.format(paths=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TUNE_GLOBAL_CHECKPOINT_S": "0"}
    return subprocess.run(
        [sys.executable, "-c", code, uri, str(folder), str(killed_at)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.slow
def test_points_are_in_mlflow_once_after_a_kill_during_a_store_outage(server, proxy, tmp_path):
    folder = tmp_path / "killed"
    proxy.become("refuse")
    killed = drive(proxy.uri, folder, killed_at=31)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (folder / SPOOL_FOLDER).is_dir()
    assert stored(server.database, folder.name) == {}
    proxy.become("pass")

    resumed = drive(proxy.uri, folder, killed_at=0)

    assert resumed.returncode == 0, resumed.stderr
    runs = assert_exact(server, folder)
    assert all(len(points) == NUM_STEPS for _, _, points in runs.values())
    assert {max(points)[1] for _, _, points in runs.values()} == {20.0, 40.0, 60.0}


@pytest.mark.slow
def test_a_server_that_asks_for_a_password_or_a_token_gets_it(sweep, server, proxy, monkeypatch):
    proxy.authorization = "Basic YWRhOmxvdmVsYWNl"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "lovelace")
    assert_exact(server, sweep(sweep_id="by-password"))

    proxy.authorization = "Bearer tok123456"
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok123456")
    assert_exact(server, sweep(sweep_id="by-token"))


@pytest.mark.slow
def test_a_password_in_the_uri_is_sent_and_not_told(sweep, server, proxy, caplog, capfd, tmp_path):
    proxy.authorization = "Basic YWRhOmxvdmVsYWNl"
    proxy.uri = proxy.uri.replace("//", "//ada:lovelace@")

    def heal():
        proxy.wait_for_failures()
        proxy.become("pass")

    folder = sweep(at_result(8, lambda: proxy.become("refuse")), at_result(40, heal))

    assert_exact(server, folder)
    assert "MLflow is not available" in caplog.text
    assert "lovelace" not in caplog.text + "".join(capfd.readouterr())
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"lovelace" not in written


@pytest.mark.slow
def test_a_sweep_from_the_shell_with_its_server_down_is_delivered_by_sync(
    untrained, verb, sweep_file, tmp_path, server, proxy
):
    proxy.become("refuse")
    settings = (f"mlflow.tracking_uri={proxy.uri}", "budget.num_samples=2", "epochs=3")
    process = untrained("run", str(sweep_file), "--json", "--set", *settings, cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    folder = Path(json.loads(out)["path"])
    assert f"tune-tf sync {folder}" in err
    assert stored(server.database, folder.name) == {}

    proxy.become("pass")
    code, out, err = verb("sync", "tiny", "--json", cwd=tmp_path)
    assert code == 0, err
    assert json.loads(out)["num_left"] == 0
    code, out, err = verb("sync", str(folder), cwd=tmp_path)
    assert (code, out) == (0, "MLflow has all of the sweep; there was nothing to deliver.\n")

    runs = stored(server.database, folder.name, "val_accuracy")
    parent = runs.pop(None)
    assert parent[0] == "FINISHED"
    points = {trial_id: points for trial_id, (_, _, points) in runs.items()}
    assert points == reported(folder, "val_accuracy")
    assert all("tune_tf.stop_reason" in tags for _, tags, _ in runs.values())
