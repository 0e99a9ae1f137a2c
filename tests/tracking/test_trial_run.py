"""The user's code inside a trial and the trial's MLflow run."""

import os
from pathlib import Path

import pytest

from tune_tf import mlflow_run
from tune_tf.errors import InvalidSettingsError
from tune_tf.tracking import mlflow_internals, trial_run
from tune_tf.tracking.trial_run import (
    NoTrialRunError,
    TrialTracking,
    enter_trial,
    leave_trial,
    throwaway_run,
)

pytestmark = pytest.mark.mlflow

TAGS = {"tune_tf.sweep_id": "s1", "tune_tf.trial_id": "t1", "tune_tf.run": "s1/t1"}


@pytest.fixture(autouse=True)
def _no_trial_is_left():
    leave_trial()  # which a test of another file drove by hand
    yield
    leave_trial()


@pytest.fixture
def tracking(store_uri):
    return TrialTracking(store_uri, "digits", "s1")


@pytest.fixture
def make_run(client):
    """Make a run as the driver does."""

    def make_run(**tags):
        known = client.get_experiment_by_name("digits")
        experiment = known.experiment_id if known else client.create_experiment("digits")
        return client.create_run(experiment, tags={**TAGS, **tags}).info.run_id

    return make_run


@pytest.fixture
def run_id(make_run, tracking):
    """The run of the trial that this process is in."""
    made = make_run()
    enter_trial("t1", tracking)
    return made


class Waiting:
    """A clock that goes on only by waiting, and does something when a wait is over."""

    def __init__(self, then=lambda: None):
        self.now = 0.0
        self.num_waits = 0
        self._then = then

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.num_waits += 1
        if self.num_waits == 3:
            self._then()


@pytest.mark.parametrize(
    ("enter", "message"),
    [
        (leave_trial, "inside a trial: call it in load_data"),
        (lambda: enter_trial("t1", None), r"trial t1 is not tracked.*mlflow section"),
        (
            lambda: TrialTracking("sqlite:///a.db", "", "it's"),
            r"2 errors(?s:.)*experiment_name.*\n.*quotes",
        ),
    ],
    ids=["no trial", "not tracked", "no sweep"],
)
def test_code_without_a_tracked_trial_is_told_what_to_do(enter, message):
    with pytest.raises((NoTrialRunError, InvalidSettingsError), match=message):
        enter() or mlflow_run()


def test_a_run_that_is_made_later_is_waited_for(make_run, tracking):
    made = []
    clock = Waiting(then=lambda: made.append(make_run()))
    enter_trial("t1", tracking)

    assert mlflow_run(clock=clock, sleep=clock.sleep).run_id == made[0]


def test_a_run_that_never_comes_is_told_after_the_time_that_was_given(tracking, client):
    clock = Waiting()
    enter_trial("t1", tracking)
    with pytest.raises(NoTrialRunError, match=r"no run for trial t1 of sweep s1 after 7 s.*raise"):
        mlflow_run(7, clock=clock, sleep=clock.sleep)

    assert clock.now == pytest.approx(7)


def test_a_sqlite_file_of_another_machine_is_told_and_not_made(tmp_path):
    clock, path = Waiting(), tmp_path / "elsewhere.db"
    enter_trial("t1", TrialTracking(f"sqlite:///{path}", "digits", "s1"))
    with pytest.raises(NoTrialRunError, match="a SQLite store serves one machine; start a server"):
        mlflow_run(1, clock=clock, sleep=clock.sleep)

    assert not path.exists()


def test_a_store_that_fails_is_told_without_its_password(monkeypatch):
    def refuse(uri):
        raise ConnectionError(f"{uri} refused")

    monkeypatch.setattr(trial_run, "connect", refuse)
    clock = Waiting()
    enter_trial("t1", TrialTracking("https://me:hunter22@mlflow.test", "digits", "s1"))
    with pytest.raises(
        NoTrialRunError, match=r"https://mlflow\.test does not answer .*ConnectionError"
    ) as caught:
        mlflow_run(1, clock=clock, sleep=clock.sleep)

    assert "hunter22" not in str(caught.value)


def test_credentials_that_the_node_lacks_come_from_the_driver(make_run, tracking, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "own")
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN", raising=False)
    given = {"MLFLOW_TRACKING_USERNAME": "driver", "MLFLOW_TRACKING_TOKEN": "abc"}
    make_run()
    enter_trial("t1", TrialTracking(tracking.tracking_uri, "digits", "s1", credentials=given))
    mlflow_run()
    names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN")
    found = [os.environ.get(name) for name in names]

    assert found == ["own", "abc"]


@pytest.mark.parametrize("status", ["RUNNING", "KILLED"])
def test_fluent_calls_go_to_the_run_and_leave_its_state_alone(status, run_id, client, monkeypatch):
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if status != "RUNNING":
        client.set_terminated(run_id, status, 1234)
    before = client.get_run(run_id).info
    with mlflow_run():
        mlflow.log_text("a", "a.txt")
        mlflow.set_tag("team", "blue")
        mlflow.log_metric("extra", 1.0, step=2)
    after = client.get_run(run_id)

    assert (after.info.status, after.info.end_time) == (before.status, before.end_time)
    assert after.data.tags["team"] == "blue"
    assert after.data.metrics == {"extra": 1.0}
    assert [file.path for file in client.list_artifacts(run_id)] == ["a.txt"]
    assert mlflow.active_run() is None
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert len(client.search_runs([after.info.experiment_id])) == 1


def test_the_store_of_the_process_comes_back_after_the_last_of_several_blocks(run_id, tmp_path):
    import mlflow

    own = f"sqlite:///{tmp_path}/own.db"
    mlflow.set_tracking_uri(own)
    try:
        with mlflow_run() as run, run:
            inside = mlflow.get_tracking_uri()
        assert (inside, mlflow.get_tracking_uri()) == (run.tracking_uri, own)
        assert os.environ["MLFLOW_TRACKING_URI"] == own
    finally:
        mlflow.set_tracking_uri(None)


def test_building_a_model_outside_trials_logs_to_a_discarded_run(run_id, client):
    import mlflow

    with throwaway_run():
        run = mlflow_run()
        with run:
            mlflow.log_text("a", "a.txt")
        written = [file.path for file in run.client.list_artifacts(run.run_id)]
    store = run.tracking_uri.removeprefix("sqlite:///")

    assert written == ["a.txt"]
    assert not Path(store).exists()
    assert mlflow_run().run_id == run_id
    assert client.list_artifacts(run_id) == []


def test_mlflow_keeps_the_active_runs_of_a_thread_where_we_look_for_them(run_id, client):
    import mlflow

    run = client.get_run(run_id)
    mlflow_internals._active_runs().append(mlflow.ActiveRun(run))
    try:
        assert mlflow.active_run().info.run_id == run_id
    finally:
        mlflow_internals._active_runs().clear()


def test_run_state_is_restored_without_mlflows_list_of_active_runs(run_id, client, monkeypatch):
    import mlflow

    monkeypatch.setattr(mlflow_internals, "_active_runs", lambda: None)
    client.set_terminated(run_id, "KILLED")
    with mlflow_run():
        mlflow.log_text("a", "a.txt")

    assert client.get_run(run_id).info.status == "KILLED"
    assert [file.path for file in client.list_artifacts(run_id)] == ["a.txt"]
    assert mlflow.active_run() is None
