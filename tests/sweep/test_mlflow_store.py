"""The MLflow store of a sweep that has run."""

import shutil

import pytest

from tune_tf import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep.mlflow_store import sync_sweep
from tune_tf.sweep_folder import SweepFolder


@pytest.fixture
def folder(empty_store, tmp_path, monkeypatch):
    """Return a function that makes the folder of a sweep, beside an empty store."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")

    def folder(**mlflow):
        config = SweepConfig.from_dict(
            {
                "name": "digits",
                "workload": "tune_tf.workloads.digits:DigitsMLP",
                "objective": {"metric": "val_loss", "mode": "min"},
                "space": {"width": 8},
                "budget": {"num_samples": 1},
                "mlflow": mlflow or None,
            }
        )
        return SweepFolder.create(config, tmp_path)

    return folder


def test_a_sweep_that_is_not_tracked_is_told(folder):
    with pytest.raises(InvalidSettingsError, match="its settings have no mlflow section"):
        sync_sweep(folder().path)
