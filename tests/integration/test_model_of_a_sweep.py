"""What the user's code and the best model leave in MLflow, by a sweep from the shell."""

import json
import shutil
from pathlib import Path

import pytest
from record_and_mlflow import parent_run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKLOAD = """\
import mlflow
import tune_tf
from tune_tf.workloads.digits import DigitsMLP


class Noted(DigitsMLP):
    def build_model(self, config):
        with tune_tf.mlflow_run():
            mlflow.log_text(f"width {config['width']}", "model.txt")
            mlflow.log_dict(dict(config), "config.json")
        return super().build_model(config)
"""

SWEEP = """\
name: noted
workload: noted.py:Noted
objective: {metric: val_accuracy, mode: max}
space:
  width: {choice: [8, 16]}
  batch_size: 256
epochs: 2
resources: {cpus: 1}
max_concurrent_trials: 1
budget: {num_samples: 3}
mlflow: {register_best: noted-digits, tracking_uri: "sqlite:///mlflow.db"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, empty_store):
    """A folder with a store of MLflow's that is made already."""
    folder = tmp_path_factory.mktemp("noted")
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture(scope="module")
def sweep(ray_cluster, verb, folder):
    """Call a verb on a sweep whose workload writes to its runs; return what it tells as JSON."""
    (folder / "noted.py").write_text(WORKLOAD)
    (folder / "noted.yaml").write_text(SWEEP)

    def sweep(*arguments):
        code, out, err = verb(*arguments, "--json", cwd=folder)
        assert code == 0, err
        return json.loads(out)

    return sweep


@pytest.fixture(scope="module")
def result(sweep):
    return sweep("run", "noted.yaml")


@pytest.fixture
def client(folder):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder}/mlflow.db")


def models_of(client, run):
    return client.search_logged_models([run.info.experiment_id])


def test_the_best_model_is_logged_registered_and_tested(result, client):
    parent = parent_run(Path(result["path"]))
    (model,) = models_of(client, parent)
    version = client.get_model_version_by_alias("noted-digits", "champion")

    assert parent.data.tags["tune_tf.best_model"] == version.source == f"models:/{model.model_id}"
    assert version.tags["tune_tf.trial_id"] == result["best"]["trial_id"]
    assert version.tags["tune_tf.checkpoint"] == result["best"]["checkpoint"]
    assert float(version.tags["tune_tf.value"]) == result["best"]["metrics"]["val_accuracy"]
    trial = client.get_run(version.tags["tune_tf.trial_run_id"])
    assert trial.data.tags["tune_tf.best_model_version"] == "models:/noted-digits/1"
    assert trial.info.status == "FINISHED"

    tests = result["best"]["test_metrics"]
    assert tests.keys() == {"test_loss", "test_accuracy"}
    for run in (parent, trial):
        for name, value in tests.items():
            (point,) = client.get_metric_history(run.info.run_id, name)
            assert (point.step, point.value) == (2, value)


def test_the_workloads_code_writes_to_its_trials_runs(result, client):
    import mlflow

    parent = parent_run(Path(result["path"]))
    runs = client.search_runs([parent.info.experiment_id])
    trials = [run for run in runs if run.info.run_id != parent.info.run_id]

    assert len(trials) == 3
    for run in trials:
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert {"model.txt", "config.json"} <= files
        told = Path(
            mlflow.artifacts.download_artifacts(
                run_id=run.info.run_id, artifact_path="model.txt", tracking_uri=client.tracking_uri
            )
        )
        assert told.read_text() == f"width {run.data.params['width']}"
        assert run.info.status == "FINISHED"
        assert "system/process_memory_usage_megabytes" in run.data.metrics
    assert not [name for name in result["best"]["metrics"] if name.startswith("system/")]
