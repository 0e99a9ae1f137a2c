"""From a table of one's own to a model that is served, by the verbs alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import own_data_files
import pytest
from documented import blocks

from tune_tf.workloads.tabular import TabularMLP

pytestmark = [pytest.mark.cluster, pytest.mark.tf]

BUDGET = (
    "mlflow={register_best: vino, best_alias: live}",
    "budget.num_samples=2",
    "epochs=3",
    "max_concurrent_trials=1",
)

PREDICT = """
import sys
import numpy as np
{documented}
assert "tune_tf" not in sys.modules
y = np.load("classes.npy")
shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
print(np.mean(logits.argmax(axis=1) == y), -np.mean(np.log(shares[np.arange(len(y)), y])))
"""


def python(code, cwd):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_rows_of_validation(folder):
    """Write the rows that a trial is validated on as a user has them, and their classes."""
    wine = TabularMLP(path=str(folder / "wine.csv"), target="class")
    _, y = wine.load_data({}).validation
    own_data_files.validation_rows(wine).to_csv(folder / "new_customers.csv", index=False)
    np.save(folder / "classes.npy", y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, empty_store):
    """The folder of the table, beside a store of MLflow's that is made already."""
    folder = tmp_path_factory.mktemp("vino")
    shutil.copy(empty_store, folder / "mlflow.db")
    own_data_files.wine(folder / "wine.csv")
    return folder


@pytest.fixture(scope="module")
def told(verb, folder, ray_cluster):
    """Call a verb; return what it tells as JSON."""

    def told(*arguments):
        code, out, err = verb(*arguments, "--json", cwd=folder)
        assert code == 0, err
        return json.loads(out)

    return told


@pytest.fixture(scope="module")
def swept(told):
    """A sweep by the file that was made from the table."""
    assert told("init", "wine.csv", "--target", "class")["path"] == "sweep.yaml"
    return told("run", "sweep.yaml", *BUDGET)


@pytest.fixture(scope="module")
def predict(folder):
    """Return share of right classes and loss of a served model, where tune_tf is not."""
    write_rows_of_validation(folder)
    (documented,) = set(blocks("served"))

    def predict(path):
        code = PREDICT.format(documented=documented).replace("models:/customers@champion", path)
        return [float(word) for word in python(code, cwd=folder).split()[-2:]]

    return predict


@pytest.fixture
def client(folder):
    return mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")


@pytest.mark.slow
def test_a_table_becomes_a_model_that_is_served(told, swept, predict, client, folder):
    best = swept["best"]
    exported = told("export", "wine", "--output", "churn.keras")
    assert exported["trial"]["trial_id"] == best["trial_id"]
    # The served model gives the trial's own numbers where tune_tf is not.
    accuracy, loss = predict("models:/vino@live")
    assert accuracy == pytest.approx(best["metrics"]["val_accuracy"])
    assert loss == pytest.approx(best["metrics"]["val_loss"], rel=1e-4)

    # The alias is of the version of the model that the sweep has logged.
    version = client.get_model_version_by_alias("vino", "live")
    parent = client.get_run(swept["mlflow_run_id"])
    assert version.source == parent.data.tags["tune_tf.best_model"]
    assert version.tags["tune_tf.trial_id"] == best["trial_id"]

    # The same version gets another alias, and that of another name is a new one.
    again = told("promote", "wine", "--alias", "second")
    assert again == {"version_uri": f"models:/vino/{version.version}", "alias": "second"}
    assert told("promote", "wine", "--name", "other")["version_uri"] == "models:/other/1"
    assert str(client.get_model_version_by_alias("other", "champion").version) == "1"


@pytest.mark.slow
def test_the_best_config_is_trained_once_more_on_all_rows(told, swept, predict, client):
    best = swept["best"]
    final = told("retrain", "wine", "--epochs", "2")

    assert final["sweep_id"].startswith("wine-retrain-")
    assert final["iterations"] == 2
    assert final["best"]["config"] == best["config"]
    assert "val_loss" not in final["best"]["metrics"]
    assert 0 <= final["best"]["test_metrics"]["test_accuracy"] <= 1
    _, loss = predict(str(Path(final["path"], "best_model")))
    assert 0 < loss < 5
    run = client.get_run(final["mlflow_run_id"])
    assert run.info.experiment_id == client.get_run(swept["mlflow_run_id"]).info.experiment_id
    assert run.data.tags["tune_tf.best_model"]
    version = client.get_model_version_by_alias("vino", "live")
    assert version.tags["tune_tf.trial_id"] == best["trial_id"]
    # As any sweep, it is there to be resumed and exported.
    assert told("resume", "wine-retrain")["sweep_id"] == final["sweep_id"]
    assert told("export", "wine-retrain", "--output", "final.keras")["path"] == "final.keras"
