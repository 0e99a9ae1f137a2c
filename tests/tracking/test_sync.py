import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.tracking.run_writer import Delivery, deliver
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.writing.run_update import PARENT, Report, RunUpdate
from tune_tf.tracking.writing.spool import Spool


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sweep" / "mlflow-spool"


@pytest.fixture
def left_behind(path, store_uri):
    """The spool of a sweep that was killed, and what its runs have in common."""
    sweep = TrackedSweep("s1", store_uri, "digits", tags={"team": "blue"})
    spool = Spool(path, sweep.to_dict())
    spool.append(1, RunUpdate(PARENT, 0, name="the sweep"))
    for step in (1, 2):
        metrics = {"loss": 1.0, "system/time_total_s": float(step)}
        spool.append(1 + step, RunUpdate("t1", 0, reports=[Report(step, step, metrics)]))
    spool.close()
    return TrackedSweep("s1", store_uri, "digits")


def runs_of(client):
    experiment = client.get_experiment_by_name("digits")
    return client.search_runs([experiment.experiment_id])


def test_what_a_killed_sweep_left_is_delivered_once(left_behind, path, client):
    assert deliver(left_behind, path) == Delivery(3, 0, 0)
    assert deliver(left_behind, path) == Delivery(0, 0, 0)
    assert not path.exists()
    runs = {run.data.tags.get("tune_tf.trial_id", PARENT): run for run in runs_of(client)}
    assert len(client.get_metric_history(runs["t1"].info.run_id, "loss")) == 2
    assert {run.data.tags["team"] for run in runs.values()} == {"blue"}


def test_what_a_store_does_not_take_stays_with_the_reason(left_behind, path):
    down = TrackedSweep("s1", "http://127.0.0.1:9", "digits")
    delivery = deliver(down, path, patience_s=0.0)
    assert (delivery.num_delivered, delivery.num_left) == (0, 3)
    assert "127.0.0.1" in delivery.error
    assert deliver(left_behind, path).num_left == 0


def test_a_sweep_that_runs_is_left_alone(left_behind, path):
    running = Spool(path, {})
    with pytest.raises(SweepConflictError, match="still running"):
        deliver(left_behind, path)
    running.close()
