"""What MLflow has of a sweep: its data set, its runs, and delivery of what they lack."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tune_tf.data.digest import digest
from tune_tf.errors import InvalidSettingsError, StoreUnavailableError
from tune_tf.outcome_rules import error_cause
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.run_writer import Delivery, deliver
from tune_tf.tracking.runs import TrackedSweep, find_run_ids
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import PARENT
from tune_tf.tracking.writing.spool import SPOOL_FOLDER
from tune_tf.workload import Workload
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.keras_tuner.hypermodel import HypermodelWorkload
from tune_tf.workloads.settings_workload import SettingsWorkload

if TYPE_CHECKING:
    from mlflow import MlflowClient

_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class MLflowStore:
    """MLflow store with the runs of a sweep."""

    client: "MlflowClient"
    tracking_uri: str = field(repr=False)  # may hold a password
    experiment_name: str
    run_ids: dict[str, str]  # MLflow's ids by trial id, and that of the sweep's run

    @classmethod
    def open(cls, folder: SweepFolder) -> Self:
        """Connect to the store and find the runs of a sweep.

        Raises:
            InvalidSettingsError: The sweep is not tracked.
            StoreUnavailableError: The store does not answer, or has no run of the sweep.
        """
        sweep = _tracked_sweep(folder)
        client = connect(sweep.tracking_uri)
        try:
            run_ids = find_run_ids(client, sweep.experiment_name, sweep.sweep_id)
        except Exception as error:
            cause = error_cause(store_error_text(error, sweep.tracking_uri))
            raise StoreUnavailableError(
                f"the MLflow store of {folder.sweep_id} does not answer: "
                f"{cause or type(error).__name__}"
            ) from error
        if PARENT not in run_ids:
            raise StoreUnavailableError(
                f"MLflow has no runs of {folder.sweep_id}: deliver them with `tune-tf sync "
                f"{folder.path}`"
            )
        return cls(client, sweep.tracking_uri, sweep.experiment_name, run_ids)

    @property
    def parent_run_id(self) -> str:
        """MLflow's id of the sweep's run."""
        return self.run_ids[PARENT]

    @contextlib.contextmanager
    def clear_errors(self, problem: str) -> Iterator[None]:
        """Raise MLflow's errors as StoreUnavailableError, without passwords."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException as error:
            text = store_error_text(error, self.tracking_uri)
            raise StoreUnavailableError(f"{problem}: {text}") from error


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
        path = workload.paths[0]
        return _fields(Path(path).name, workload.stamp, "local", {"uri": mask_secrets(path)})
    is_made_of_data = isinstance(workload, FunctionWorkload | HypermodelWorkload)
    found = digest(workload.data if is_made_of_data else workload.load_data)  # type: ignore[attr-defined]
    if found is None:
        return None
    source = {"tags": {"mlflow.source.name": workload_name}}
    return _fields(workload_name.rpartition(":")[2], found.hex(), "code", source)


def _fields(
    name: str, digest_text: str, source_type: str, source: dict[str, Any]
) -> dict[str, str]:
    return {
        "name": name,
        "digest": digest_text[:_DIGEST_LENGTH],
        "source_type": source_type,
        "source": json.dumps(source),
    }
