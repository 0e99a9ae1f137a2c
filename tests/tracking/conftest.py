import os
import shutil
from unittest import mock

import pytest

from tune_tf.objective import Objective


@pytest.fixture(autouse=True)
def _same_environment():
    """Put back what MLflow's settings in the environment were."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def store_uri(empty_store, tmp_path, monkeypatch):
    """A fresh store in the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def client(store_uri):
    """A client that sees what a reader of the store sees."""
    from tune_tf.tracking.store import connect

    return connect(store_uri)


@pytest.fixture
def callback_of(store_uri):
    def callback_of(**settings):
        from tune_tf.tracking import MLflowCallback

        settings = {
            "experiment_name": "digits",
            "objective": Objective("val_accuracy", "max"),
            **settings,
        }
        return MLflowCallback(store_uri, **settings)

    return callback_of


@pytest.fixture
def trial_of(tmp_path):
    """Make Tune's own trial, without a trainable."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    def trial_of(trial_id, rate=1.0, status="RUNNING", last_result=None):
        storage = StorageContext(str(tmp_path / "ray"), "exp")
        trial = Trial(
            "scripted", stub=True, trial_id=trial_id, config={"rate": rate}, storage=storage
        )
        trial.set_status(status)
        trial.run_metadata.last_result = last_result or {}
        return trial

    return trial_of
