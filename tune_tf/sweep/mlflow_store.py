"""What MLflow has of a sweep: its data set, and delivery of what its runs lack."""

import json
from pathlib import Path
from typing import Any

from tune_tf.data.digest import digest
from tune_tf.errors import InvalidSettingsError
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.run_writer import Delivery, deliver
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.writing.spool import SPOOL_FOLDER
from tune_tf.workload import Workload
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.keras_tuner.hypermodel import HypermodelWorkload
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


def dataset_of(workload: Workload, workload_name: str) -> dict[str, str] | None:
    """Return the fields of MLflow's ``Dataset`` for the data of a workload.

    The digest of files is that of their names, sizes and times; that of arrays at hand, of their
    contents; that of other data, of the code and attributes behind ``load_data``. None if these
    cannot be compared, such as a ``tf.data.Dataset``.
    """
    if isinstance(workload, SettingsWorkload):
        return _dataset_in_files(workload)
    is_made_of_data = isinstance(workload, FunctionWorkload | HypermodelWorkload)
    found = digest(workload.data if is_made_of_data else workload.load_data)  # type: ignore[attr-defined]
    if found is None:
        return None
    source = {"tags": {"mlflow.source.name": workload_name}}
    return _fields(workload_name.rpartition(":")[2], found.hex(), "code", source)


def _dataset_in_files(workload: SettingsWorkload[Any, Any, Any]) -> dict[str, str] | None:
    settings, stamp = workload.settings, workload.stamp
    paths = [path for name in settings.paths if (path := getattr(settings, name)) is not None]
    if stamp is None:
        known = digest(settings.model_dump(mode="json"))
        name = str(getattr(settings, "name", type(workload).__name__))
        return None if known is None else _fields(name, known.hex(), "keras", {"name": name})
    profile = {"num_files": stamp.num_files, "num_bytes": stamp.num_bytes}
    fields = _fields(Path(paths[0]).name, stamp.digest, "local", {"uri": mask_secrets(paths[0])})
    return {**fields, "profile": json.dumps(profile)}


def _fields(
    name: str, digest_text: str, source_type: str, source: dict[str, Any]
) -> dict[str, str]:
    return {
        "name": name,
        "digest": digest_text[:_DIGEST_LENGTH],
        "source_type": source_type,
        "source": json.dumps(source),
    }
