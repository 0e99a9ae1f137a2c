"""Delivering and closing a sweep's folder, as a killed driver leaves it."""

import shutil

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import PARENT, Report, RunUpdate
from tune_tf.tracking.writing.spool import SPOOL_FOLDER, Spool

SWEEP = """
name: tiny
workload: tune_tf.workloads.digits:DigitsMLP
objective: {metric: val_accuracy, mode: max}
space:
  learning_rate: {loguniform: [1.0e-4, 1.0e-1]}
budget: {num_samples: 2}
"""


@pytest.fixture
def folder_of(tmp_path, monkeypatch, empty_store):
    """Make the folder of a sweep that is about to run."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")

    def folder_of(more=""):
        (tmp_path / "tiny.yaml").write_text(SWEEP + more)
        return SweepFolder.create(SweepConfig.from_yaml(tmp_path / "tiny.yaml"), tmp_path)

    return folder_of


@pytest.fixture
def killed(folder_of):
    """A sweep killed in the middle of a trial, before MLflow had anything of it."""
    folder = folder_of()
    sweep = TrackedSweep(folder.sweep_id, folder.tracking_uri, folder.config.mlflow.experiment_name)
    spool = Spool(folder.path / SPOOL_FOLDER, sweep.to_dict())
    spool.append(1, RunUpdate(PARENT, 0, name=folder.sweep_id))
    metrics = {"val_accuracy": 0.5, "system/time_total_s": 1.0}
    spool.append(2, RunUpdate("t1", 0, reports=[Report(1, 1000, metrics)]))
    spool.close()
    return folder


def states(folder):
    client = connect(folder.tracking_uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    return {
        run.data.tags.get("tune_tf.trial_id", PARENT): (
            run.info.status,
            run.data.tags.get("tune_tf.stop_reason"),
        )
        for run in client.search_runs(experiments)
    }


def test_a_killed_sweep_is_delivered_and_its_runs_are_left_for_a_resume(killed):
    from tune_tf.sweep.mlflow_store import sync_sweep

    assert sync_sweep("tiny").num_delivered == 2
    assert states(killed) == {PARENT: ("RUNNING", None), "t1": ("RUNNING", None)}
    assert sync_sweep(killed.path).num_delivered == 0


def test_a_sweep_that_runs_is_refused(killed):
    from tune_tf.sweep.mlflow_store import sync_sweep

    running = Spool(killed.path / SPOOL_FOLDER)
    with pytest.raises(SweepConflictError, match="is in use by a sweep that is still running"):
        sync_sweep(killed.path)
    running.close()


def test_a_sweep_that_is_not_tracked_is_refused(folder_of):
    from tune_tf.sweep.mlflow_store import sync_sweep

    folder_of("mlflow: null\n")
    with pytest.raises(
        InvalidSettingsError, match="is not tracked: its settings have no mlflow section"
    ):
        sync_sweep("tiny")
