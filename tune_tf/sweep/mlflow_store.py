"""MLflow as a view of a sweep: while it runs, and what is sent afterwards."""

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tune_tf.errors import InvalidSettingsError
from tune_tf.record import Record, SweepHistory
from tune_tf.remote_storage import join_uri
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking import MLflowView, SweepDetails, TrackedSweep
from tune_tf.tracking.tags import PARENT
from tune_tf.workload import Workload
from tune_tf.workloads.settings_workload import SettingsWorkload

BEST_MODEL: Final = "best model"
MLFLOW_RUNS: Final = "MLflow's runs"
"""Names of outputs that are missing while MLflow lacks something."""

_DIGEST_LENGTH = 16
_SYNC_PATIENCE_S = 20.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """How MLflow stands after what it lacked was sent."""

    num_left: int  # of trials whose runs still lack something
    num_refused: int  # values that MLflow rejected for good
    error: str = ""  # empty if nothing is left


def store_error_text(error: Exception, tracking_uri: str) -> str:
    """Return the text of a store's error, which may quote its URI with a password, without it."""
    return mask_secrets(str(error).replace(tracking_uri, "the store")).strip()


def mlflow_view(
    folder: SweepFolder, rungs: Callable[[], Collection[int]], *, is_over: bool = False
) -> MLflowView:
    """Return MLflow as a view of a sweep.

    ``rungs`` returns the iterations at which the scheduler compares trials; ``is_over`` is whether
    no process drives the sweep.

    Raises:
        InvalidSettingsError: The sweep is not tracked.
    """
    config, uri, remote = folder.config, folder.tracking_uri, folder.config.remote_storage
    if config.mlflow is None or uri is None:
        raise InvalidSettingsError(
            f"{folder.sweep_id} is not tracked: its settings have no mlflow section"
        )
    sweep = TrackedSweep(
        folder.mlflow_id,
        uri,
        config.mlflow.experiment_name,
        folder.sweep_id,
        objective=config.leading_objective,
        constraints=config.constraints,
        details=SweepDetails(config.space, rungs, {"sweep.yaml": folder.masked_file}),
        storage=join_uri(remote, folder.sweep_id) if remote else str(folder.path),
        files={"report.html": folder.path / "report" / "report.html"},
    )
    return MLflowView(folder.path, sweep, is_over=is_over)


def close_view(view: MLflowView, folder: SweepFolder) -> bool:
    """Wait until MLflow has everything, at most for a while; return whether it has."""
    has_all = view.close()
    if not has_all:
        _log.warning(
            "MLflow lacks a part of the sweep%s. Send it with:  tune-tf sync %s",
            f" ({view.last_error})" if view.last_error else "",
            folder.path,
        )
    return has_all


def record_runs(view: MLflowView, record: Record) -> None:
    """Record the ids of MLflow's runs that are new."""
    history = record.history
    known = {key: trial.run_id for key, trial in history.trials.items()}
    run_ids = view.trial_run_ids.items()
    if new := {key: run_id for key, run_id in run_ids if known.get(key) != run_id}:
        record.record_run_ids(new)
    run_id = view.run_id_of(PARENT)
    if run_id is not None and run_id != history.run_id:
        record.record_parent_run(run_id)


def sync_sweep(path: str | Path, *, storage_path: str | Path = "sweeps") -> Delivery:
    """Send to MLflow what it lacks of a sweep that has ended or was killed.

    Repeated calls write nothing twice. The arguments are those of :meth:`SweepFolder.open`.

    Raises:
        SweepConflictError: The sweep is still running and sends by itself.
        InvalidSettingsError: The sweep is not tracked.
    """
    from tune_tf.sweep.plan import make_scheduler

    folder = SweepFolder.open(path, storage_path)
    mlflow_view(folder, tuple)  # raises for a sweep that is not tracked
    if not SweepHistory.read(folder.path).sessions:
        return Delivery(0, 0)
    with Record(folder.path) as record:
        rungs = make_scheduler(folder.config).rungs
        view = mlflow_view(folder.at_home(), lambda: rungs, is_over=True)
        history = record.history
        view.start(history.trials.keys())
        has_all = view.close(_SYNC_PATIENCE_S)
        missing = {*history.sessions[-1].missing_outputs}
        if has_all:
            missing.discard(MLFLOW_RUNS)
        if history.run_id not in (None, view.run_id_of(PARENT)):  # it was made anew
            missing.add(BEST_MODEL)
        record.record_missing_outputs(sorted(missing))
        record_runs(view, record)
    num_left = 0 if has_all else max(view.num_waiting, 1)
    return Delivery(num_left, view.num_refused, view.last_error)


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
