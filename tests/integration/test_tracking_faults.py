"""What MLflow has of a sweep whose store, or whose driver, fails on the way."""

import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy
from tracking_server import TrackingServer

from tune_tf.record import SweepHistory, recorded_results

pytestmark = [pytest.mark.cluster, pytest.mark.mlflow, pytest.mark.slow]

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
    monkeypatch.setattr("tune_tf.tracking.view._PATIENCE_S", 120.0)


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


def assert_exact(server, folder):
    """Assert that each point that was reported stands once, in one run a trial, of one parent."""
    runs = stored(server.database, folder.name)
    status, _, _ = runs.pop(None)
    points = {trial_id: points for trial_id, (_, _, points) in runs.items()}
    assert points == reported(folder)
    assert len(points) == NUM_TRIALS
    assert status == "FINISHED"
    ends = {(state, tags.get("tune_tf.stop_reason")) for state, tags, _ in runs.values()}
    assert ends == {("FINISHED", "completed")}


@pytest.mark.usefixtures("patient")
def test_a_server_killed_and_started_again_has_every_point_once(sweep, server, proxy, caplog):
    caplog.set_level("INFO", "tune_tf")

    def kill():
        server.kill()
        proxy.num_failed = 0

    folder = sweep(at_result(8, kill), at_result(40, server.start))

    assert_exact(server, folder)
    told = [r.getMessage().partition(";")[0] for r in caplog.records if "MLflow" in r.getMessage()]
    assert told in (
        [],
        ["MLflow is not available", "MLflow is available again"],
    )


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


def test_a_password_in_the_uri_is_sent_and_not_told(sweep, server, proxy, caplog, capfd, tmp_path):
    proxy.authorization = "Basic YWRhOmxvdmVsYWNl"
    proxy.uri = proxy.uri.replace("//", "//ada:lovelace@")

    def heal():
        proxy.wait_for_failures(7)  # of several updates: a single one is not told
        proxy.become("pass")

    folder = sweep(at_result(8, lambda: proxy.become("refuse")), at_result(40, heal))

    assert_exact(server, folder)
    assert "MLflow is not available" in caplog.text
    assert "lovelace" not in caplog.text + "".join(capfd.readouterr())
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"lovelace" not in written


def test_a_sweep_from_the_shell_with_its_server_down_is_delivered_by_sync(
    untrained, verb, sweep_file, tmp_path, server, proxy
):
    proxy.become("refuse")
    settings = (f"mlflow.tracking_uri={proxy.uri}", "budget.num_samples=2", "epochs=3")
    process = untrained("run", str(sweep_file), "--json", *settings, cwd=tmp_path)
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
    assert (code, out) == (0, "MLflow has all of the sweep.\n")

    runs = stored(server.database, folder.name, "val_accuracy")
    parent = runs.pop(None)
    assert parent[0] == "FINISHED"
    points = {trial_id: points for trial_id, (_, _, points) in runs.items()}
    recorded = {
        trial_id: {
            (each["training_iteration"], each["val_accuracy"]): 1
            for each in recorded_results(folder, trial.number)
        }
        for trial_id, trial in SweepHistory.read(folder).trials.items()
    }
    assert points == recorded
    assert all("tune_tf.stop_reason" in tags for _, tags, _ in runs.values())
