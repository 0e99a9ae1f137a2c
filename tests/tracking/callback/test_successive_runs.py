"""One callback in several runs of one process, beside MLflow runs of the user's own."""

import copy

import pytest
from inline_actors import run_inline
from ray import cloudpickle, tune
from ray.tune.schedulers import FIFOScheduler

from tune_tf.objective import Objective

pytestmark = [pytest.mark.mlflow, pytest.mark.usefixtures("inline")]


class Counting(tune.Trainable):
    def step(self):
        return {"loss": 1 / (self.iteration + 1)}


def sweep(folder, callback, count=2):
    return run_inline(
        Counting,
        folder,
        scheduler=FIFOScheduler(),
        callbacks=[callback],
        stop={"training_iteration": 2},
        config={"rate": tune.grid_search([float(each) for each in range(count)])},
    )


def runs_of(client, name="digits"):
    """Return the children of each parent, the oldest first."""
    experiment = client.get_experiment_by_name(name).experiment_id
    runs = client.search_runs([experiment], order_by=["attributes.start_time ASC"])
    parents = [run for run in runs if "tune_tf.trial_id" not in run.data.tags]
    return {
        parent.info.run_id: [
            run
            for run in runs
            if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id
            and "tune_tf.trial_id" in run.data.tags
        ]
        for parent in parents
    }


@pytest.fixture
def callback(callback_of):
    return callback_of(objective=Objective("loss", "min"), tags={"team": "blue"})


@pytest.mark.parametrize(
    "between",
    [lambda it: it, copy.deepcopy, lambda it: cloudpickle.loads(cloudpickle.dumps(it))],
    ids=["the same", "a copy", "pickled"],
)
def test_each_run_is_a_sweep_of_its_own(between, callback, client, tmp_path):
    sweep(tmp_path / "one", callback, count=2)
    first = callback.parent_run_id, set(callback.run_ids().values())
    again = between(callback)
    sweep(tmp_path / "two", again, count=3)
    found = runs_of(client)
    assert list(found) == [first[0], again.parent_run_id]
    assert [len(children) for children in found.values()] == [2, 3]
    assert {run.info.run_id for run in found[first[0]]} == first[1]
    assert len(set(again.run_ids().values())) == 3
    every = [run for children in found.values() for run in children]
    assert {(run.info.status, run.data.tags["team"]) for run in every} == {("FINISHED", "blue")}
    assert len({run.data.tags["tune_tf.sweep_id"] for run in every}) == 2
    assert {run.info.run_name for run in every} == {
        run.data.tags["tune_tf.trial_name"] for run in every
    }
    assert client.get_run(again.parent_run_id).data.metrics["trials/ended"] == 3


def test_a_run_that_is_active_stays_as_it_is(callback, client, store_uri, tmp_path):
    import mlflow

    mlflow.set_tracking_uri(store_uri)
    try:
        mlflow.set_experiment("mine")
        with mlflow.start_run(run_name="outer") as outer:
            mlflow.log_param("own", 1)
            sweep(tmp_path, callback)
            assert mlflow.active_run().info.run_id == outer.info.run_id
            mlflow.log_metric("own", 2.0)
        assert mlflow.get_tracking_uri() == store_uri
        run = client.get_run(outer.info.run_id)
    finally:
        mlflow.set_tracking_uri(None)
    assert run.info.status == "FINISHED"
    assert (run.data.params, run.data.metrics) == ({"own": "1"}, {"own": 2.0})
    assert not [tag for tag in run.data.tags if tag.startswith("tune_tf.")]
    ((parent, children),) = runs_of(client).items()
    assert "mlflow.parentRunId" not in client.get_run(parent).data.tags
    assert {child.info.status for child in children} == {"FINISHED"}


def test_a_run_id_in_the_environment_is_left_to_its_owner(callback, client, tmp_path, monkeypatch):
    other = client.create_run(client.create_experiment("mine"))
    monkeypatch.setenv("MLFLOW_RUN_ID", other.info.run_id)
    sweep(tmp_path, callback)
    assert client.get_run(other.info.run_id).data.metrics == {}
    assert client.get_run(other.info.run_id).info.status == "RUNNING"
    assert callback.parent_run_id != other.info.run_id


class Broken(FIFOScheduler):
    """A scheduler that raises at the first result."""

    def on_trial_result(self, tune_controller, trial, result):
        raise RuntimeError("out of order")


def test_after_a_run_that_an_error_has_ended_there_can_be_another(callback, client, tmp_path):
    with pytest.raises(tune.TuneError, match="out of order"):
        run_inline(
            Counting,
            tmp_path / "one",
            scheduler=Broken(),
            callbacks=[callback],
            config={"rate": 1.0},
        )
    sweep(tmp_path / "one", callback, count=2)
    states = [{run.info.status for run in children} for children in runs_of(client).values()]
    assert states[-1] == {"FINISHED"}


def test_a_run_in_the_folder_of_an_earlier_one_is_a_sweep_of_its_own(callback, client, tmp_path):
    sweep(tmp_path / "one", callback, count=2)
    sweep(tmp_path / "one", callback, count=1)
    assert [len(children) for children in runs_of(client).values()] == [2, 1]
