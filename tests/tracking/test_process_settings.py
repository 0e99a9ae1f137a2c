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
    """Return the store and the experiment of a callback's parent run, as it stands in the store."""
    from tune_tf.tracking.store import connect

    callback.setup()
    callback.on_experiment_end([])
    uri = callback._writer.sweep.tracking_uri
    client = connect(uri)
    run = client.get_run(callback.parent_run_id)
    return uri, client.get_experiment(run.info.experiment_id).name


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


def test_an_id_does_not_count_in_another_store(monkeypatch, store_uri, tmp_path, unset):
    other = tmp_path / "other.db"
    other.write_bytes((tmp_path / "mlflow.db").read_bytes())
    unset.set_tracking_uri(store_uri)
    unset.set_experiment("chosen")
    assert where(MLflowCallback(f"sqlite:///{other}"))[1] == "tune_tf"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    assert where(MLflowCallback(f"sqlite:///{other}"))[1] == "another"


@pytest.mark.parametrize("known", ["77", "nonsense"])
def test_an_id_that_the_store_does_not_have_is_refused(known, monkeypatch, store_uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", known)
    with pytest.raises(
        InvalidSettingsError, match=f"MLFLOW_EXPERIMENT_ID='{known}' cannot be read"
    ):
        MLflowCallback()


def test_a_deleted_experiment_is_refused(monkeypatch, store_uri, client):
    deleted = client.create_experiment("gone")
    client.delete_experiment(deleted)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", deleted)
    with pytest.raises(InvalidSettingsError, match="'gone', which was deleted"):
        MLflowCallback()


def test_a_name_and_an_id_that_disagree_are_refused(monkeypatch, store_uri, client):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", client.create_experiment("one"))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "two")
    with pytest.raises(InvalidSettingsError, match=r"'two' and MLFLOW_EXPERIMENT_ID=.* disagree"):
        MLflowCallback()
    assert where(MLflowCallback(experiment_name="three")) == (store_uri, "three")


def test_error_of_a_silent_store_shows_no_password(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "1")
    with pytest.raises(InvalidSettingsError, match="cannot be read from") as raised:
        MLflowCallback()
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("uri", ["redis://host", "http://"])
def test_a_store_in_the_environment_that_cannot_work_is_refused(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InvalidSettingsError, match="tracking_uri"):
        MLflowCallback()


def test_empty_variables_are_none(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert where(MLflowCallback()) == ("sqlite:///mlflow.db", "tune_tf")


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
