"""From a table of one's own to a model that is served, by the verbs alone."""

import json
import subprocess
import sys
from pathlib import Path

import own_data_files
import pytest
from documented import blocks

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROWS_OF_VALIDATION = """
import numpy as np
import pandas as pd
from tune_tf.workloads.tabular import TabularMLP
wine = TabularMLP(path="wine.csv", target="class")
x, y = wine.load_data({}).validation
pd.DataFrame(wine.serving_rows(x)).to_csv("new_customers.csv", index=False)
np.save("classes.npy", y)
"""

PREDICT = """
import sys
import numpy as np
{documented}
assert "tune_tf" not in sys.modules
logits, y = model.predict(rows, verbose=0), np.load("classes.npy")
shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
print(np.mean(logits.argmax(axis=1) == y), -np.mean(np.log(shares[np.arange(len(y)), y])))
"""

SERVED = """
import sys
import mlflow
import numpy as np
import pandas as pd
mlflow.set_tracking_uri("sqlite:///mlflow.db")
model = mlflow.pyfunc.load_model("models:/vino@live")
logits = model.predict(pd.read_csv("new_customers.csv").fillna({"region": ""}))
assert "tune_tf" not in sys.modules
print(np.mean(logits.argmax(axis=1) == np.load("classes.npy")))
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


@pytest.fixture
def told(finished, tmp_path):
    """Run a verb; return what it tells as JSON."""

    def told(*arguments):
        code, out, err = finished(*arguments, "--json", cwd=tmp_path)
        assert code == 0, err
        return json.loads(out)

    return told


def test_a_table_becomes_a_model_that_is_served(told, finished, tmp_path):
    import mlflow

    own_data_files.wine(tmp_path / "wine.csv")
    written = told("init", "wine.csv", "--target", "class")
    assert written["path"] == "sweep.yaml"
    there = tmp_path / told("schema", "--output", "again.json")["path"]
    assert there.read_bytes() == (tmp_path / "sweep.schema.json").read_bytes()

    budget = ("budget.num_samples=2", "scheduler={name: fifo, max_t: 3}")
    forecast = told("plan", "sweep.yaml", "--set", *budget)
    assert forecast["trials"]["likely"] == 2
    swept = told("run", "sweep.yaml", "--set", *budget)
    best = swept["best"]
    assert swept["forecast"]["trials"]["actual"] == 2
    page = (tmp_path / told("report", "wine", "--output", "page")["report.html"]).read_text()
    assert "How far the forecast was off" in page

    # The exported model gives the trial's own numbers where tune_tf is not.
    exported = told("export", "wine", "--output", "churn.keras")
    assert exported["trial_id"] == best["trial_id"]
    python(ROWS_OF_VALIDATION, cwd=tmp_path)
    (documented,) = blocks("served")
    predict = PREDICT.format(documented=documented)
    accuracy, loss = map(float, python(predict, cwd=tmp_path).split()[-2:])
    assert accuracy == pytest.approx(best["metrics"]["val_accuracy"])
    assert loss == pytest.approx(best["metrics"]["val_loss"], rel=1e-4)

    # The alias is of the version of the model that the sweep has logged.
    promoted = told("promote", "wine", "--alias", "live", "--name", "vino")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    version = client.get_model_version_by_alias("vino", "live")
    parent = client.get_run(swept["mlflow_run_id"])
    assert version.source == promoted["model_uri"] == parent.data.tags["tune_tf.best_model"]
    assert version.tags["tune_tf.trial_id"] == best["trial_id"]
    assert told("promote", "wine", "--alias", "live", "--name", "vino") == promoted
    assert float(python(SERVED, cwd=tmp_path).split()[-1]) == pytest.approx(accuracy)

    # Trained again on the same rows, it has the trial's numbers.
    code, _, err = finished("promote", "wine", "--retrained", cwd=tmp_path)
    assert code == 2
    assert "has no final model in MLflow: make one with `tune-tf retrain`" in err

    again = told("retrain", "wine", "--on", "train")
    for name, value in best["metrics"].items():
        assert again["metrics"][name] == pytest.approx(value, rel=1e-4), name

    # Trained on more rows, it is tested on those that no trial has seen.
    final = told("retrain", "wine", "--epochs", "2")
    assert final["num_epochs"] == 2
    assert "val_loss" not in final["metrics"]
    assert final["metrics"]["loss"] != again["metrics"]["loss"]
    assert 0 <= final["metrics"]["test_accuracy"] <= 1
    predict = predict.replace("churn.keras", final["model_path"])
    accuracy, loss = map(float, python(predict, cwd=tmp_path).split()[-2:])
    assert 0 < loss < 5

    run = client.get_run(final["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.tags["tune_tf.retrained_sweep_id"] == swept["sweep_id"]
    served = told("promote", "wine", "--alias", "live", "--name", "vino", "--retrained")
    assert served["model_uri"] == run.data.tags["tune_tf.best_model"]
    assert served["before"] == promoted["version_uri"]
    assert client.get_model_version_by_alias("vino", "live").source == served["model_uri"]
    assert told("promote", "wine", "--alias", "live", "--name", "vino", "--retrained") == {
        **served,
        "before": None,
    }
    assert run.data.tags["tune_tf.retrained_trial_id"] == best["trial_id"]
    assert run.data.params["width"] == str(best["config"]["width"])
    points = client.get_metric_history(run.info.run_id, "loss")
    assert [point.step for point in points] == [1, 2]
    assert run.data.metrics["test_accuracy"] == pytest.approx(final["metrics"]["test_accuracy"])
    trial_run = client.get_run(run.data.tags["tune_tf.retrained_trial_run_id"])
    assert trial_run.data.tags["tune_tf.retrained_run_id"] == run.info.run_id
    model = client.get_logged_model(final["model_uri"].rpartition("/")[2])
    assert (model.source_run_id, str(model.status)) == (run.info.run_id, "READY")

    # What cannot be is told in one message.
    for arguments, text in (
        (("export", "wine", "--trial", "x7"), "has no trial 'x7'; there are 2, for example"),
        (("retrain", "win"), "there is no sweep 'win'"),
        (("export", "wine", "--output", "churn.keras"), "churn.keras is there already"),
    ):
        code, _, err = finished(*arguments, cwd=tmp_path)
        assert (code, "Traceback" in err) == (2, False)
        assert text in err
    (tmp_path / "wine.csv").unlink()
    code, _, err = finished("retrain", "wine", cwd=tmp_path)
    assert code == 2
    assert f"there is no file {tmp_path / 'wine.csv'}" in err
    assert "Traceback" not in err
    assert Path(swept["path"]).is_dir()
