"""MLflow as a view of a record: what the record says is there once, whatever happens."""

import math
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from faulty_client import DeadError, FaultyClient
from mlflow.store.entities import PagedList
from recorded_sweep import RecordedSweep

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory, trial_results
from tune_tf.tracking import MLflowView, SweepDetails, TrackedSweep, run_content, runs
from tune_tf.tracking.store import connect

pytestmark = pytest.mark.mlflow

DATASET = {"name": "wine.csv", "digest": "ab12", "source_type": "local", "source": "{}"}


@pytest.fixture
def sweep(tmp_path):
    recorded = RecordedSweep(tmp_path / "sweep")
    yield recorded
    recorded.close()


@pytest.fixture
def view_of(tmp_path, store_uri, client, monkeypatch):
    """Return a function that makes a view, in a process of its own as far as it knows."""

    def view_of(faulty=None, *, uri=store_uri, is_over=False, **more):
        if faulty is not None:
            monkeypatch.setattr(runs, "connect", lambda uri: faulty)
        elif uri == store_uri:
            monkeypatch.setattr(runs, "connect", lambda uri: client)
        settings = {
            "objective": Objective("loss", "min"),
            "tags": {"team": "blue"},
            "details": SweepDetails(texts={"sweep.yaml": "name: s1"}, rungs=lambda: (1, 3)),
            "files": {"report.html": tmp_path / "report.html"},
            "storage": "/sweeps/s1",
        }
        tracked = TrackedSweep("s1", uri, "digits", "the sweep", **{**settings, **more})
        return MLflowView(tmp_path / "sweep", tracked, is_over=is_over)

    return view_of


class Stored:
    """What the store has of the sweep."""

    def __init__(self, client):
        self.client = client
        experiment = client.get_experiment_by_name("digits")
        found = client.search_runs([experiment.experiment_id], max_results=5000)
        self.runs = {run.data.tags.get("tune_tf.trial_id", ""): run for run in found}
        assert len(found) == len(self.runs), "a run is there twice"

    def __getitem__(self, trial_id):
        return self.runs[trial_id]

    def points(self, trial_id, name):
        history = self.client.get_metric_history(self[trial_id].info.run_id, name)
        return sorted((each.step, each.value, each.timestamp) for each in history)

    def text(self, trial_id, path):
        return Path(self.client.download_artifacts(self[trial_id].info.run_id, path)).read_text()

    def everything(self):
        """Return all that is there except ids and what MLflow chooses."""
        return {key: self._of(key) for key in self.runs}

    def _of(self, key):
        run = self[key]
        own = ("mlflow.source", "mlflow.user", "mlflow.parentRunId")
        run_id = run.info.run_id
        return {
            "status": (run.info.status, run.info.start_time, run.info.end_time),
            "params": run.data.params,
            "tags": {k: v for k, v in run.data.tags.items() if not k.startswith(own)},
            "points": {name: repr(self.points(key, name)) for name in run.data.metrics},
            "files": sorted(each.path for each in self.client.list_artifacts(run_id)),
            "inputs": [each.dataset.digest for each in run.inputs.dataset_inputs],
        }


def full(sweep):
    """Record a sweep with something of everything, which has ended."""
    sweep.record.record_dataset(DATASET)
    sweep.run(0, Outcome.COMPLETED, 3.0, math.nan, 2.0)
    sweep.start(1, kind="plain")
    sweep.report(1, 1, math.inf)
    sweep.report(1, 1, math.inf)  # again after a restart
    sweep.record.record_clone("t1", {"rate": 0.7, "kind": "fast"}, 1, "t0")
    changed = {"rate": 0.7, "kind": "fast"}
    sweep.report(1, 1, 1.5, config=changed, exploits=1, hostname="gpu-1", node_ip="10.0.0.7")
    sweep.end(1, Outcome.PRUNED, "worse than half")
    sweep.start(2)
    sweep.end(2, Outcome.ERROR, "ValueError: boom", "Failure # 1\nValueError: boom\n")
    sweep.record.record_test("t0", {"test_loss": 2.25})
    sweep.finish()


def test_a_run_has_each_point_of_the_record_once(sweep, view_of, client, tmp_path):
    full(sweep)
    (tmp_path / "report.html").write_text("<p>all of it</p>")
    view_of().update()
    stored = Stored(client)
    assert stored.runs.keys() == {"", "t0", "t1", "t2"}
    for trial in SweepHistory.read(tmp_path / "sweep").trials.values():
        rows = {
            (row.exploits, row.metrics["training_iteration"]): row
            for row in reversed(trial_results(tmp_path / "sweep", trial.number))
        }
        told = [
            (step, stored_value(row.metrics["loss"]), int(row.time_s * 1000))
            for (_, step), row in rows.items()
        ]
        found = stored.points(trial.trial_id, "loss") if told else []
        assert repr(sorted(found)) == repr(sorted(told))


def stored_value(value):
    """Return a value as MLflow's databases keep it: no infinity, and 0 and a flag for NaN."""
    return sys.float_info.max if value == math.inf else value


def test_a_run_has_what_else_is_recorded(sweep, view_of, client, tmp_path):
    full(sweep)
    (tmp_path / "report.html").write_text("<p>all of it</p>")
    view_of().update()
    stored = Stored(client)
    states = {
        key: (run.info.status, run.data.tags.get("tune_tf.stop_reason"))
        for key, run in stored.runs.items()
    }
    assert states == {
        "": ("FINISHED", None),
        "t0": ("FINISHED", "completed"),
        "t1": ("KILLED", "pruned"),
        "t2": ("FAILED", "error"),
    }
    clone, parent = stored["t1"].data, stored[""]
    assert clone.params == {"rate": "0.5", "kind": "plain"}
    tags = {
        key: clone.tags.get(f"tune_tf.{key}")
        for key in ("cloned_from", "node", "stop_cause", "rung", "devices", "trial_number")
    }
    assert tags == {
        "cloned_from": "t0",
        "node": "gpu-1 10.0.0.7",
        "stop_cause": "worse than half",
        "rung": "1",
        "devices": "1 CPU",
        "trial_number": "1",
    }
    assert clone.tags["hp/kind"] == "fast"
    assert clone.tags["mlflow.parentRunId"] == parent.info.run_id
    assert [point[:2] for point in stored.points("t1", "hp/rate")] == [(1, 0.7)]
    assert [point[:2] for point in stored.points("t1", "tune/exploits")] == [(1, 1.0)]
    assert stored.text("t2", "error.txt") == "Failure # 1\nValueError: boom\n"
    assert stored.text("", "report.html") == "<p>all of it</p>"
    assert stored.text("", "sweep.yaml") == "name: s1"
    assert {run.data.tags["team"] for run in stored.runs.values()} == {"blue"}
    assert parent.info.run_name == "the sweep"
    assert parent.data.params == {"best_rate": "0.5"}
    assert parent.data.tags["tune_tf.best_trial_id"] == "t0"
    assert parent.data.metrics == {
        "loss": 2.0,
        "best/loss": 2.0,
        "test_loss": 2.25,
        "trials/completed": 1.0,
        "trials/pruned": 1.0,
        "trials/error": 1.0,
        "trials/ended": 3.0,
    }
    assert [point[:2] for point in stored.points("", "trials/ended")] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
    ]
    assert [point[:2] for point in stored.points("t0", "test_loss")] == [(3, 2.25)]


def num_calls(view_of, client):
    """Return how many calls a view makes that finds the experiment, and no runs."""
    client.create_experiment("digits")
    counting = FaultyClient(client)
    view_of(counting).update()
    return len(counting.calls)


def forget_everything(client):
    for run in Stored(client).runs.values():
        client.delete_run(run.info.run_id)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_view_killed_at_any_call_and_begun_again_gives_the_same_store(
    sweep, view_of, client, after
):
    full(sweep)
    count = num_calls(view_of, client)
    wanted = Stored(client).everything()
    for at in range(count):
        forget_everything(client)
        with pytest.raises(DeadError):
            view_of(FaultyClient(client, at, after=after)).update()
        view_of().update()
        assert Stored(client).everything() == wanted, f"killed at call {at}"


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_a_call_that_fails_is_made_up_for_by_the_next_update(sweep, view_of, client, after):
    full(sweep)
    count = num_calls(view_of, client)
    wanted = Stored(client).everything()
    for at in range(count):
        forget_everything(client)
        view = view_of(FaultyClient(client, at, after=after, error=ConnectionError))
        with pytest.raises(ConnectionError):
            view.update()
        view.update()
        assert Stored(client).everything() == wanted, f"failed at call {at}"


def test_a_second_update_sends_nothing_and_a_second_view_no_results_of_ended_trials(
    sweep, view_of, client
):
    full(sweep)
    view_of().update()
    counting = FaultyClient(client)
    again = view_of(counting)
    again.update()
    assert counting.calls.count("log_batch") == 2  # progress, and metrics on the test rows
    expected = {"get_experiment_by_name", "search_runs", "log_batch", "log_text"}
    assert set(counting.calls) == expected
    del counting.calls[:]
    again.update()
    assert counting.calls == []


@pytest.fixture
def running(sweep):
    """A sweep of one trial that has reported once."""
    sweep.start(0)
    sweep.report(0, 1, 2.0)
    return sweep


def test_each_update_sends_what_is_new(running, view_of, client):
    view = view_of()
    view.update()
    assert Stored(client)["t0"].info.status == Stored(client)[""].info.status == "RUNNING"
    running.report(0, 2, 1.0)
    running.create(1)
    view.update()
    stored = Stored(client)
    assert [point[:2] for point in stored.points("t0", "loss")] == [(1, 2.0), (2, 1.0)]
    assert stored["t1"].info.status == "RUNNING"
    running.end(0, Outcome.DIVERGED, "loss is nan")
    view.update()
    assert Stored(client)["t0"].info.status == "FAILED"
    assert Stored(client)[""].data.metrics["trials/diverged"] == 1.0
    assert view.run_ids == {key: run.info.run_id for key, run in Stored(client).runs.items()}


def test_a_resume_reopens_runs_and_takes_back_how_they_ended(running, view_of, client):
    running.end(0, Outcome.INTERRUPTED, "ctrl-c")
    running.finish(interrupted=True)
    view_of().update()
    stored = Stored(client)
    tags = stored["t0"].data.tags
    assert (tags["tune_tf.stop_reason"], tags["tune_tf.stop_cause"]) == ("interrupted", "ctrl-c")
    assert stored[""].info.status == stored["t0"].info.status == "KILLED"

    running.record.begin_session()
    running.start(0)
    running.report(0, 1, 2.0)  # again, from its checkpoint
    running.report(0, 2, 1.0)
    view = view_of()
    view.update()
    stored = Stored(client)
    assert stored[""].info.status == stored["t0"].info.status == "RUNNING"
    assert not [tag for tag in stored["t0"].data.tags if tag.startswith("tune_tf.stop")]
    assert [point[:2] for point in stored.points("t0", "loss")] == [(1, 2.0), (2, 1.0)]
    running.end(0, Outcome.COMPLETED)
    running.finish()
    view.update()
    assert Stored(client)[""].data.metrics["trials/ended"] == 1.0
    assert Stored(client)[""].info.status == "FINISHED"


def test_an_end_that_mlflow_shows_alike_is_not_taken_for_the_next_one(running, view_of, client):
    running.end(0, Outcome.INTERRUPTED)
    running.finish(interrupted=True)
    view_of().update()
    running.record.begin_session()
    running.start(0)
    running.report(0, 2, 1.0)
    running.end(0, Outcome.PRUNED)
    ended_ms = int(running.record.history.trials["t0"].ended_s * 1000)
    view_of().update()
    stored = Stored(client)
    assert [point[:2] for point in stored.points("t0", "loss")] == [(1, 2.0), (2, 1.0)]
    assert stored["t0"].data.tags["tune_tf.stop_reason"] == "pruned"
    assert (stored["t0"].info.status, stored["t0"].info.end_time) == ("KILLED", ended_ms)


def test_what_a_killed_driver_left_is_told_as_interrupted(running, view_of, client):
    view_of().update()
    view_of(is_over=True).update()
    stored = Stored(client)
    assert stored[""].info.status == stored["t0"].info.status == "KILLED"
    assert stored["t0"].data.tags["tune_tf.stop_reason"] == "interrupted"


def test_runs_that_were_deleted_are_made_anew(running, view_of, client, caplog):
    running.run(1, Outcome.COMPLETED, 3.0, 2.0)
    view = view_of()
    view.update()
    before = Stored(client)
    client.delete_run(before["t0"].info.run_id)
    running.report(0, 2, 1.0)
    view.update()
    after = Stored(client)
    assert after["t0"].info.run_id != before["t0"].info.run_id
    assert after["t1"].info.run_id == before["t1"].info.run_id
    assert len(after.points("t0", "loss")) == 2
    assert "1 runs of s1 are not in MLflow any more" in caplog.text

    running.record.record_run_ids(view.trial_run_ids)
    for run in after.runs.values():
        client.delete_run(run.info.run_id)
    view_of().update()
    assert [point[:2] for point in Stored(client).points("t1", "loss")] == [(1, 3.0), (2, 2.0)]
    assert "2 runs of s1 are not in MLflow any more" in caplog.text


def test_runs_are_children_of_a_parent_made_anew_and_restored_ones_are_no_second_ones(
    running, view_of, client
):
    running.run(1, Outcome.COMPLETED, 3.0, 2.0)
    view_of().update()
    before = Stored(client)
    for key in ("", "t1"):
        client.delete_run(before[key].info.run_id)
    view = view_of()
    view.update()
    after = Stored(client)
    for key in ("t0", "t1"):
        assert after[key].data.tags["mlflow.parentRunId"] == after[""].info.run_id
    running.record.record_run_ids(view.trial_run_ids)
    running.record.record_parent_run(view.run_id_of(""))
    for key in ("", "t1"):
        client.restore_run(before[key].info.run_id)
    view_of().update()
    assert {run.info.run_id for run in Stored(client).runs.values()} == {
        after[key].info.run_id for key in ("", "t0", "t1")
    }


def test_a_deleted_experiment_is_restored(running, view_of, client, caplog):
    view = view_of()
    view.update()
    client.delete_experiment(client.get_experiment_by_name("digits").experiment_id)
    running.report(0, 2, 1.0)
    view.update()
    assert len(Stored(client).points("t0", "loss")) == 2
    assert "the MLflow experiment 'digits' was deleted: it is restored" in caplog.text


def test_another_store_gets_everything(
    running, view_of, client, empty_store, tmp_path, monkeypatch
):
    full(running)
    view = view_of()
    view.update()
    shutil.copy(empty_store, tmp_path / "other.db")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    other = view_of(uri=f"sqlite:///{tmp_path}/other.db")
    other.update()
    wanted, found = (Stored(connect(view.sweep.tracking_uri)) for view in (view, other))
    assert found.everything() == wanted.everything()


def test_runs_of_trials_that_are_forgotten_are_deleted(running, view_of, client):
    running.run(1, Outcome.COMPLETED, 3.0)
    view_of().update()
    running.record.forget_trials(["t1"])
    view_of().update()
    assert Stored(client).runs.keys() == {"", "t0"}


def test_of_a_batch_with_a_value_that_mlflow_refuses_the_rest_is_sent(
    running, view_of, client, caplog, monkeypatch
):
    monkeypatch.setattr(run_content, "mlflow_metrics", lambda result: {"no*way": 1.0, "loss": 2.0})
    view = view_of()
    view.update()
    stored = Stored(client)
    assert stored["t0"].data.metrics == {"loss": 2.0}
    assert stored["t0"].data.params == {"rate": "0.5"}
    assert view.num_refused == 1
    assert "MLflow rejected a value" in caplog.text


def test_more_than_mlflow_takes_in_a_batch_is_sent_whole(sweep, view_of, client):
    sweep.start(0, **{f"p{number}": number for number in range(250)})
    sweep.report(0, 1, **{f"m{number}": float(number) for number in range(2500)})
    view_of().update()
    data = Stored(client)["t0"].data
    assert (len(data.params), len(data.metrics)) == (251, 2502)


def test_an_infeasible_trial_is_tagged_and_never_the_best(sweep, view_of, client):
    sweep.run(0, Outcome.COMPLETED, 1.0)
    sweep.run(1, Outcome.COMPLETED, 3.0)
    view_of(constraints=(Constraint("loss", ">=", 2.0),)).update()
    stored = Stored(client)
    feasible = {key: stored[key].data.tags["tune_tf.feasible"] for key in ("t0", "t1")}
    assert feasible == {"t0": "false", "t1": "true"}
    assert stored[""].data.metrics["best/loss"] == 3.0


def test_of_equally_good_trials_the_first_is_the_best_whichever_ended_first(sweep, view_of, client):
    sweep.run(1, Outcome.COMPLETED, 1.0)
    sweep.run(0, Outcome.COMPLETED, 1.0)
    sweep.run(2, Outcome.PRUNED, 0.5)
    view_of().update()
    assert Stored(client)[""].data.tags["tune_tf.best_trial_id"] == "t0"


def test_a_better_trial_of_a_larger_budget_becomes_the_best(sweep, view_of, client):
    sweep.run(0, Outcome.COMPLETED, 2.0)
    sweep.finish()
    view_of().update()
    sweep.record.begin_session()
    sweep.run(1, Outcome.COMPLETED, 1.0, rate=0.1)
    sweep.finish()
    view_of().update()
    data = Stored(client)[""].data
    assert data.params == {"best_rate": "0.5"}  # a parameter cannot change
    assert data.tags["best_rate"] == "0.1"
    assert data.metrics["loss"] == 1.0


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([Outcome.COMPLETED, Outcome.ERROR], "FINISHED"),
        ([Outcome.PRUNED, Outcome.OUT_OF_BUDGET], "FINISHED"),
        ([Outcome.ERROR, Outcome.OOM, Outcome.DIVERGED], "FAILED"),
        ([], "FINISHED"),
    ],
)
def test_a_sweep_has_failed_only_if_every_trial_has(sweep, view_of, client, outcomes, status):
    for number, outcome in enumerate(outcomes):
        sweep.run(number, outcome)
    sweep.finish()
    view_of().update()
    assert Stored(client)[""].info.status == status


def test_what_an_update_costs_does_not_grow_with_the_number_of_trials(sweep, view_of, client):
    sweep.record.begin_step()
    for number in range(1000):
        sweep.run(number, Outcome.COMPLETED, 2.0, 1.0)
    sweep.record.end_step()
    sweep.start(1000)
    view = view_of(AlwaysOk())
    view.update()
    assert view.num_waiting == 1
    begun_s = time.thread_time()
    for epoch in range(1, 11):
        sweep.report(1000, epoch)
        view.update()
    assert (time.thread_time() - begun_s) / 10 < 0.02


class AlwaysOk:
    """A store that takes everything."""

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active")

    def search_runs(self, *arguments, **options):
        return PagedList([], None)

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        info = SimpleNamespace(run_id=tags["tune_tf.run"], status="RUNNING", end_time=None)
        data = SimpleNamespace(params={}, tags=tags, metrics={})
        return SimpleNamespace(info=info, data=data, inputs=None)

    def __getattr__(self, name):
        return lambda *arguments, **options: None


def test_artifacts_are_beside_the_database_wherever_the_driver_runs(
    running, view_of, tmp_path, monkeypatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    view = view_of()
    view.update()
    (file,) = tmp_path.rglob("sweep.yaml")
    run_id = view.run_id_of("")
    assert file.relative_to(tmp_path / "mlruns").parts[1:] == (run_id, "artifacts", "sweep.yaml")
