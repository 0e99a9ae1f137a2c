"""Delivery of a sweep's pending MLflow data, and closing of its runs."""

from dataclasses import dataclass
from pathlib import Path

from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.run_writer import Delivery, deliver, end_runs
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.writing.spool import SPOOL_FOLDER


@dataclass(frozen=True)
class CloseResult:
    """Outcome of closing a sweep: the ids of the ended runs, none if pending data remains."""

    delivery: Delivery
    run_ids: tuple[str, ...] = ()


def sync_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> Delivery:
    """Deliver data to MLflow that was pending when the sweep ended or was killed.

    Repeated calls write nothing twice.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: The sweep is still running and delivers by itself.
        InvalidSettingsError: The sweep is not tracked.
    """
    folder = SweepFolder.open(path, storage_path)
    return deliver(_tracked_sweep(folder), folder.path / SPOOL_FOLDER)


def close_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> CloseResult:
    """End the MLflow runs that a killed driver left running, for a sweep that will not resume.

    Pending data is delivered first, as by :func:`sync_sweep`; if that fails, no run is ended. A
    closed sweep can still be resumed.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: The sweep is still running.
        InvalidSettingsError: The sweep is not tracked.
    """
    folder = SweepFolder.open(path, storage_path)
    sweep, spool_path = _tracked_sweep(folder), folder.path / SPOOL_FOLDER
    delivery = deliver(sweep, spool_path)
    if delivery.num_left:
        return CloseResult(delivery)
    return CloseResult(delivery, tuple(end_runs(sweep, spool_path)))


def _tracked_sweep(folder: SweepFolder) -> TrackedSweep:
    if folder.config.mlflow is None or folder.tracking_uri is None:
        raise InvalidSettingsError(
            [f"{folder.sweep_id} is not tracked: its settings have no mlflow section"]
        )
    return TrackedSweep(
        folder.sweep_id,
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        reopen=True,
    )
