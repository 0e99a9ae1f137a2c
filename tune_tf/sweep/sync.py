"""A sweep's MLflow runs after the sweep: delivering what the store has not taken, and closing."""

from dataclasses import dataclass
from pathlib import Path

from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.names import NUM_ENDED_METRIC
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.sync import Delivery, deliver, end_runs
from tune_tf.tracking.writing.spool import SPOOL_FOLDER


@dataclass(frozen=True)
class Closing:
    """What closing a sweep has done.

    Args:
        delivery: What became of what the store had not taken.
        run_ids: MLflow's ids of the runs that were ended; none if something is left to deliver.
    """

    delivery: Delivery
    run_ids: tuple[str, ...] = ()


def sync_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> Delivery:
    """Deliver to MLflow what it had not taken when the sweep ended or was killed.

    It may be called again: what MLflow has is not written twice.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: The sweep is still running: it delivers by itself.
        InvalidSettingsError: The sweep is not tracked.
    """
    folder = SweepFolder.open(path, storage_path)
    return deliver(_tracked_sweep(folder), folder.path / SPOOL_FOLDER)


def close_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> Closing:
    """End what a killed driver has left running in MLflow, for a sweep that will not go on.

    Delivers first what :func:`sync_sweep` does, and ends nothing if that cannot be. A sweep that
    was closed can still be resumed.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: The sweep is still running.
        InvalidSettingsError: The sweep is not tracked.
    """
    folder = SweepFolder.open(path, storage_path)
    sweep, spool_path = _tracked_sweep(folder), folder.path / SPOOL_FOLDER
    delivery = deliver(sweep, spool_path)
    if delivery.num_left:
        return Closing(delivery)
    return Closing(delivery, tuple(end_runs(sweep, spool_path)))


def _tracked_sweep(folder: SweepFolder) -> TrackedSweep:
    if folder.config.mlflow is None or folder.tracking_uri is None:
        raise InvalidSettingsError(
            [f"{folder.sweep_id} is not tracked: its settings have no section mlflow"]
        )
    return TrackedSweep(
        folder.sweep_id,
        folder.tracking_uri,
        folder.config.mlflow.experiment_name,
        marker=NUM_ENDED_METRIC,
        reopen=True,
    )
