"""The thread of a view: nobody waits for it but at the end, and then not for ever."""

import threading
import time
from types import SimpleNamespace

import pytest
from recorded_sweep import RecordedSweep

from tune_tf.outcome import Outcome
from tune_tf.tracking import MLflowView, TrackedSweep, environment, runs

pytestmark = pytest.mark.mlflow


@pytest.fixture
def sweep(tmp_path):
    """A sweep of one trial, which has ended."""
    recorded = RecordedSweep(tmp_path / "sweep")
    recorded.run(0, Outcome.COMPLETED, 1.0)
    yield recorded
    recorded.close()


@pytest.fixture
def store(client, monkeypatch):
    """A store that may be down, or hang."""
    store = SimpleNamespace(is_down=False, gate=threading.Event(), num_tries=0)
    store.gate.set()

    def opened(uri):
        store.num_tries += 1
        store.gate.wait(240)
        if store.is_down:
            raise ConnectionError(f"{uri} is down")
        return client

    monkeypatch.setattr(runs, "connect", opened)
    monkeypatch.setattr(environment, "environment_texts", lambda: {"packages.txt": "a==1\n"})
    return store


@pytest.fixture
def start(tmp_path, store_uri):
    started = []

    def start():
        view = MLflowView(tmp_path / "sweep", TrackedSweep("s1", store_uri, "digits", "s1"))
        view.start(["t0"])
        started.append(view)
        return view

    yield start
    for view in started:
        view.stop()


def wait_until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def runs_of(client):
    experiment = client.get_experiment_by_name("digits")
    found = client.search_runs([experiment.experiment_id])
    return {run.data.tags.get("tune_tf.trial_id", ""): run for run in found}


def test_all_is_there_at_the_end_with_the_environment_of_each_session(sweep, store, start, client):
    first = start()
    assert first.flush()
    assert runs_of(client)[""].info.status == "RUNNING"
    sweep.finish(interrupted=True)
    assert first.close()
    sweep.record.begin_session()
    second = start()
    sweep.run(1, Outcome.COMPLETED, 2.0)
    sweep.finish()
    assert second.close()
    parent = runs_of(client)[""]
    assert parent.info.status == "FINISHED"
    [folder] = client.list_artifacts(parent.info.run_id)
    resumed, packages = client.list_artifacts(parent.info.run_id, folder.path)[::-1]
    assert packages.path == "environment/packages.txt"
    [again] = client.list_artifacts(parent.info.run_id, resumed.path)
    assert resumed.path.startswith("environment/resumed-2")
    assert again.path == f"{resumed.path}/packages.txt"


def test_an_outage_is_told_once_and_its_end_too(sweep, store, start, client, caplog):
    caplog.set_level("INFO", "tune_tf")
    store.is_down = True
    view = start()
    wait_until(lambda: store.num_tries > 1)
    sweep.finish()
    store.is_down = False
    assert view.close(patience_s=60.0)
    assert runs_of(client)["t0"].info.status == "FINISHED"
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told == [
        "MLflow is not available; training continues",
        "MLflow is available again; it has all results by now",
    ]


def test_a_store_that_stays_away_is_not_waited_for(sweep, store, start):
    store.is_down = True
    view = start()
    wait_until(lambda: view.last_error)
    begun = time.monotonic()
    assert not view.close(patience_s=0.0)
    assert time.monotonic() - begun < 5
    assert view.last_error.endswith("is down")


def test_a_store_that_hangs_is_left_after_a_while(sweep, store, start, monkeypatch):
    monkeypatch.setattr("tune_tf.tracking.view._LONGEST_S", 0.1)
    store.gate.clear()
    view = start()
    wait_until(lambda: store.num_tries)
    assert not view.close()
    store.gate.set()


def test_a_password_in_an_error_is_not_told(sweep, store, start, store_uri, tmp_path):
    store.is_down = True
    tracked = TrackedSweep("s1", "https://me:hunter22@mlflow.test", "digits", "s1")
    view = MLflowView(tmp_path / "sweep", tracked)
    view.start(())
    wait_until(lambda: view.last_error)
    view.stop()
    assert "hunter22" not in view.last_error
