"""A callback without arguments writes where MLflow's own calls of the process would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.tracking import MLflowCallback

pytestmark = pytest.mark.mlflow

VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")


@pytest.fixture(autouse=True)
def unset(monkeypatch, store_uri):
    """Let nothing be set in this process, and put back what a test sets."""
    import mlflow
    from mlflow.tracking import fluent
    from mlflow.tracking._tracking_service import utils

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(utils, "_tracking_uri", None)
    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    yield mlflow
    mlflow.set_tracking_uri(None)


def where(callback):
    """Return the store and the experiment that a callback writes to."""
    return callback._sweep.tracking_uri, callback._sweep.experiment_name


def test_store_and_experiment_have_defaults():
    assert where(MLflowCallback()) == ("sqlite:///mlflow.db", "tune_tf")


def test_the_environment_says_store_and_name(monkeypatch, store_uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "from outside")
    assert where(MLflowCallback()) == (store_uri, "from outside")
    assert where(MLflowCallback(experiment_name="given")) == (store_uri, "given")


def test_the_environment_says_an_id(monkeypatch, store_uri, client):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", client.create_experiment("by its id"))
    assert where(MLflowCallback()) == (store_uri, "by its id")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "by its id")
    assert where(MLflowCallback()) == (store_uri, "by its id")


def test_what_the_process_has_set_comes_before_the_environment(monkeypatch, store_uri, unset):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://nowhere.example")
    unset.set_tracking_uri(store_uri)
    unset.set_experiment("chosen")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    assert where(MLflowCallback()) == (store_uri, "chosen")
    assert unset.get_tracking_uri() == store_uri


@pytest.mark.parametrize(
    ("experiment_id", "name", "message"),
    [
        ("77", "", "MLFLOW_EXPERIMENT_ID='77' cannot be read"),
        ("nonsense", "", "MLFLOW_EXPERIMENT_ID='nonsense' cannot be read"),
        ("of gone", "", "'gone', which was deleted"),
    ],
)
def test_an_experiment_that_cannot_be_meant_is_refused(
    experiment_id, name, message, monkeypatch, store_uri, client
):
    ids = {f"of {name}": client.create_experiment(name) for name in ("gone", "one")}
    client.delete_experiment(ids["of gone"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", ids.get(experiment_id, experiment_id))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name)
    with pytest.raises(InvalidSettingsError, match=message):
        MLflowCallback()
    assert where(MLflowCallback(experiment_name="three")) == (store_uri, "three")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("redis://host", "tracking_uri 'redis://host' has the scheme"),
        ("http://me:hush@127.0.0.1:9", r"cannot be read from http://me:\*\*\*@127"),
    ],
)
def test_a_store_in_the_environment_that_cannot_work_is_refused(uri, message, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "1")
    with pytest.raises(InvalidSettingsError, match=message) as raised:
        MLflowCallback()
    assert "hush" not in str(raised.value)


def test_a_registry_of_its_own_is_used(monkeypatch, store_uri):
    from tune_tf.tracking.store import connect

    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "sqlite:///models.db")
    assert connect(store_uri)._registry_uri == "sqlite:///models.db"


def test_a_name_is_taken_without_loading_mlflow(tmp_path):
    code = (
        "import sys; from tune_tf import MLflowCallback; MLflowCallback(); "
        "sys.exit('mlflow' in sys.modules)"
    )
    root = str(Path(__file__).parents[2])
    own = {"PYTHONPATH": root, "MLFLOW_EXPERIMENT_NAME": "digits", "MLFLOW_TRACKING_URI": ""}
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, **own}
    )
