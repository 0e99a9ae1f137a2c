"""What ``tune-tf sync`` sends of a sweep that has ended or was killed."""

import shutil

import pytest
from recorded_sweep import RecordedSweep

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory
from tune_tf.sweep.mlflow_store import MLFLOW_RUNS, Delivery, sync_sweep
from tune_tf.sweep_folder import SweepFolder

pytestmark = pytest.mark.mlflow

SETTINGS = {
    "name": "digits",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"rate": {"uniform": [0.0, 1.0]}},
    "budget": {"num_samples": 2},
}


@pytest.fixture
def folder_of(tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "mlflow.db")

    def folder_of(uri=f"sqlite:///{tmp_path}/mlflow.db", **more):
        mlflow = {"tracking_uri": uri, "experiment_name": "digits"}
        settings = {"storage_path": str(tmp_path / "sweeps"), "mlflow": mlflow, **more}
        return SweepFolder.create(SweepConfig.from_dict(SETTINGS | settings), tmp_path)

    return folder_of


@pytest.fixture
def killed(folder_of):
    """The folder of a sweep whose driver was killed."""
    folder = folder_of()
    recorded = RecordedSweep(folder.path)
    recorded.run(0, Outcome.COMPLETED, 2.0, 1.0)
    recorded.start(1)
    recorded.close()
    return folder


def runs_of(folder):
    from tune_tf.tracking.store import connect

    client = connect(folder.tracking_uri)
    experiment = client.get_experiment_by_name("digits")
    found = client.search_runs([experiment.experiment_id])
    return {run.data.tags.get("tune_tf.trial_id", ""): run for run in found}


def test_what_a_killed_sweep_left_is_sent_once(killed):
    assert sync_sweep(killed.path) == Delivery(0, 0)
    runs = runs_of(killed)
    assert sync_sweep(killed.path) == Delivery(0, 0)
    again = {key: run.to_dictionary() for key, run in runs_of(killed).items()}
    assert again == {key: run.to_dictionary() for key, run in runs.items()}
    assert {key: run.info.status for key, run in runs.items()} == {
        "": "KILLED",
        "t0": "FINISHED",
        "t1": "KILLED",
    }
    recorded = SweepHistory.read(killed.path).trials
    assert {key: trial.run_id for key, trial in recorded.items()} == {
        key: run.info.run_id for key, run in runs.items() if key
    }


def test_what_a_store_does_not_take_is_left_with_the_reason(folder_of, monkeypatch):
    monkeypatch.setattr("tune_tf.sweep.mlflow_store._SYNC_PATIENCE_S", 0.0)
    folder = folder_of(uri="http://127.0.0.1:9")
    recorded = RecordedSweep(folder.path)
    recorded.run(0, Outcome.COMPLETED, 1.0)
    recorded.record.record_session_end(interrupted=False, missing_outputs=["report", MLFLOW_RUNS])
    recorded.close()
    delivery = sync_sweep(folder.path)
    assert delivery.num_left == 1
    assert "127.0.0.1" in delivery.error
    assert MLFLOW_RUNS in SweepHistory.read(folder.path).sessions[-1].missing_outputs


def test_after_all_is_sent_no_run_is_missing(killed):
    recorded = RecordedSweep(killed.path)
    recorded.record.record_session_end(interrupted=True, missing_outputs=["report", MLFLOW_RUNS])
    recorded.close()
    assert sync_sweep(killed.path).num_left == 0
    assert SweepHistory.read(killed.path).sessions[-1].missing_outputs == ("report",)


def test_a_sweep_that_runs_is_left_alone(killed):
    running = RecordedSweep(killed.path)
    with pytest.raises(SweepConflictError, match="still running"):
        sync_sweep(killed.path)
    running.close()


def test_a_sweep_that_never_began_or_is_not_tracked_has_nothing_to_send(folder_of):
    assert sync_sweep(folder_of().path) == Delivery(0, 0)
    with pytest.raises(InvalidSettingsError, match="is not tracked"):
        sync_sweep(folder_of(mlflow=None).path)


def test_a_resume_logs_the_model_of_a_sweep_whose_parent_was_made_anew(folder_of):
    from tune_tf.tracking.store import connect

    folder = folder_of()
    recorded = RecordedSweep(folder.path)
    recorded.run(0, Outcome.COMPLETED, 2.0)
    recorded.record.record_session_end(interrupted=False, run_ids={})
    recorded.close()
    sync_sweep(folder.path)
    assert SweepHistory.read(folder.path).sessions[-1].missing_outputs == ()
    connect(folder.tracking_uri).delete_run(runs_of(folder)[""].info.run_id)
    sync_sweep(folder.path)
    assert SweepHistory.read(folder.path).sessions[-1].missing_outputs == ("best model",)
