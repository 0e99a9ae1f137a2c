"""What MLflow has of a sweep: its data set, and delivery of what its runs lack."""

import json
from pathlib import Path

from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.run_writer import Delivery, deliver
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.writing.spool import SPOOL_FOLDER
from tune_tf.workload import Workload
from tune_tf.workloads.settings_workload import SettingsWorkload

_DIGEST_LENGTH = 16


def store_error_text(error: Exception, tracking_uri: str) -> str:
    """Return the text of a store's error, which may quote its URI with a password, without it."""
    return mask_secrets(str(error).replace(tracking_uri, "the store")).strip()


def sync_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> Delivery:
    """Deliver data to MLflow that was pending when the sweep ended or was killed.

    Repeated calls write nothing twice. The arguments are those of :meth:`SweepFolder.open`.

    Raises:
        SweepConflictError: The sweep is still running and delivers by itself.
        InvalidSettingsError: The sweep is not tracked.
    """
    folder = SweepFolder.open(path, storage_path)
    return deliver(_tracked_sweep(folder), folder.path / SPOOL_FOLDER)


def _tracked_sweep(folder: SweepFolder) -> TrackedSweep:
    """Return the sweep's tracking; raise InvalidSettingsError without any."""
    uri, settings = folder.tracking_uri, folder.config.mlflow
    if settings is None or uri is None:
        raise InvalidSettingsError(
            f"{folder.sweep_id} is not tracked: its settings have no mlflow section"
        )
    return TrackedSweep(folder.sweep_id, uri, settings.experiment_name, reopen=True)


def dataset_of(workload: Workload) -> dict[str, str] | None:
    """Return the fields of MLflow's ``Dataset`` for the files of a workload; None without any.

    The digest is that of their names, sizes and times.
    """
    if not isinstance(workload, SettingsWorkload):
        return None
    path = workload.settings.path
    return {
        "name": Path(path).name,
        "digest": workload.stamp[:_DIGEST_LENGTH],
        "source_type": "local",
        "source": json.dumps({"uri": mask_secrets(path)}),
    }
