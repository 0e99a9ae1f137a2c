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
    from tune_tf.tracking.runs import connect

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
