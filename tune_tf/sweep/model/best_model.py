"""Logging, registration and promotion of a sweep's best model in MLflow."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tune_tf.config import MLflowSettings, import_workload
from tune_tf.errors import (
    InvalidSettingsError,
    StoreUnavailableError,
    UnknownMetricError,
    first_line,
)
from tune_tf.events import EventLog
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.outcome_rules import error_cause
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.mlflow_store import MLflowStore, store_error_text
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep.model.retrained_run import RETRAINED, RETRAINED_WORSE
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.names import mlflow_params
from tune_tf.tracking.registry import BestModel, FinalModel, ModelRegistry
from tune_tf.tracking.store import connect
from tune_tf.tracking.writing.run_update import TRIAL_ID_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")

_FOLDER = "best_model"
_ANSWER_S = 20.0


@dataclass(frozen=True)
class LoggedBestModel:
    """Best model in MLflow: its URI, and that of its registered version, if any."""

    uri: str
    version_uri: str | None = None


def log_best_model(
    result: SweepResult,
    settings: MLflowSettings,
    export_process: ModelExportProcess,
    *,
    tracking_uri: str,
    run_ids: Mapping[str, str],
) -> LoggedBestModel | None:
    """Log a sweep's best model and register it if configured; never twice.

    An error becomes a warning with a remedy, as the sweep has its result; it returns None then, and
    without a best trial. ``run_ids`` maps trial ids to those of MLflow runs.
    """
    problem = "The best model was not logged to MLflow"
    try:
        best, logged, registry = _logged_best(
            result, settings, export_process, tracking_uri, run_ids
        )
        problem = f"The best model is logged as {logged.uri}, but not registered"
        if settings.register_best is None or logged.version_uri is not None:
            return logged
        version = registry.register(best, logged.uri, settings.register_best, settings.best_alias)
        return replace(logged, version_uri=version)
    except UnknownMetricError:
        return None  # no best trial, as the report says
    except KeyboardInterrupt:
        reason = "it was interrupted"
    except Exception as error:  # noqa: BLE001  the sweep's result must not be lost with it
        _log.debug("Logging the best model failed", exc_info=error)
        reason = error_cause(store_error_text(error, tracking_uri)) or type(error).__name__
    _log.warning(
        "%s: %s. `tune-tf resume %s` tries again; result.export_model('best.keras') exports it "
        "without MLflow.",
        problem,
        reason,
        result.path,
    )
    return None


def evaluate_best(
    result: SweepResult, export_process: ModelExportProcess, event_log: EventLog
) -> None:
    """Evaluate the best trial's model on the test rows, if any, and record its metrics, once.

    An error becomes a warning.
    """
    best = result.best_if_any
    if best is None or best.checkpoint is None or best.test_metrics:
        return
    try:
        workload = import_workload(result.config.workload, result.base_dir, result.config.data)
        metrics = export_process.evaluate(workload, best.config, best.checkpoint)
        if metrics:
            event_log.record_test(best.trial_id, metrics)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the sweep has its result
        _log.debug("Evaluating the best model failed", exc_info=error)
        text = first_line(getattr(error, "cause", None) or error)
        _log.warning("The best model was not evaluated on the test rows: %s", text)


def _logged_best(
    result: SweepResult,
    settings: MLflowSettings,
    export_process: ModelExportProcess,
    tracking_uri: str,
    run_ids: Mapping[str, str],
) -> tuple[BestModel, LoggedBestModel, ModelRegistry]:
    """Log a sweep's best model unless it is; return it, its URIs in MLflow, and the registry.

    Raises the errors of :func:`promote_best`.
    """
    trial = result.best_trial
    trial_run_id = run_ids.get(trial.trial_id)
    if result.mlflow_run_id is None or trial_run_id is None:
        raise StoreUnavailableError("MLflow does not have the runs of this sweep yet")
    best = BestModel(
        sweep_id=result.sweep_id,
        trial_id=trial.trial_id,
        run_id=trial_run_id,
        checkpoint=str(result.best_checkpoint),
        metric=result.objective.metric,
        value=result.best_value,
        params=mlflow_params(trial.config),
    )
    client = connect(tracking_uri)
    _await_answer(client, result.mlflow_run_id)
    registry = ModelRegistry(client, result.mlflow_run_id)
    logged = registry.latest_model()
    if logged is not None and best.matches(logged.tags):
        uri = f"models:/{logged.model_id}"
        registry.keep(best, uri)
        version = settings.register_best and registry.version_of(logged, settings.register_best)
        return best, LoggedBestModel(uri, version), registry
    written = export_process.write(
        import_workload(result.config.workload, result.base_dir, result.config.data),
        trial.config,
        result.best_checkpoint,
        result.path / _FOLDER,
        best.tags,
    )
    return best, LoggedBestModel(registry.log(best, written.path)), registry


def _await_answer(client: "MlflowClient", run_id: str) -> None:
    """Raise StoreUnavailableError if no answer comes in time: MLflow itself retries for minutes."""
    answer = run_in_thread(lambda: client.get_run(run_id), "tune_tf-best-model")
    if not wait([answer], _ANSWER_S).done:
        raise StoreUnavailableError("the MLflow store does not answer")
    answer.result()


def run_in_thread(work: Callable[[], _Value], name: str) -> Future[_Value]:
    """Run a function in a daemon thread; an executor's would keep the process from ending."""
    future = Future[_Value]()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001  raised in the thread that asks for the result
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


@dataclass(frozen=True)
class Promotion:
    """Registered model version that received an alias."""

    uri: str  # for mlflow.keras.load_model: models:/name@alias
    version_uri: str  # models:/name/3
    model_uri: str  # of the logged model
    before: str | None  # previous version with the alias; None if none or this one
    sweep_id: str
    trial: TrialResult  # the best one, or the one whose config was retrained


def promote_best(
    sweep: str | Path,
    alias: str = "champion",
    *,
    name: str | None = None,
    retrained: bool = False,
    even_if_worse: bool = False,
    storage_path: str | Path = "sweeps",
) -> Promotion:
    """Give an alias to the registered version of a sweep's best or final model.

    The model is logged and registered first if necessary, never twice.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        alias: Alias; another version of the model that has it loses it.
        name: The registered model; by default ``mlflow.register_best`` of the sweep file, or the
            sweep's name.
        retrained: Promote the latest model of ``retrain`` instead of the best one.
        even_if_worse: Promote it although it tests worse than the trial's own model.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownMetricError: No feasible trial reported a finite value.
        CheckpointError: The best trial has no checkpoint to log a model from.
        InvalidSettingsError: The sweep is not tracked, MLflow rejects the name or alias, no final
            model exists, or it tests worse.
        StoreUnavailableError: MLflow does not answer, or has no runs of the sweep.
    """
    folder = SweepFolder.open(sweep, storage_path)
    mlflow = folder.config.mlflow
    name = name or (mlflow and mlflow.register_best) or folder.config.name
    settings = MLflowSettings(register_best=name, best_alias=alias)
    view = SweepView.open(folder.path)
    if retrained:
        return _promote_final(view, MLflowStore.open(folder), name, alias, even_if_worse)
    _ = view.result.best_trial  # raises without one
    store = MLflowStore.open(folder)
    result = replace(view.result, mlflow_run_id=store.parent_run_id)
    with ModelExportProcess() as export_process, store.clear_errors("MLflow refuses"):
        best, logged, registry = _logged_best(
            result, settings, export_process, store.tracking_uri, store.run_ids
        )
        version_uri = logged.version_uri or registry.register(best, logged.uri, name, None)
        before = registry.set_alias(version_uri, alias)
    uri = f"models:/{name}@{alias}"
    return Promotion(uri, version_uri, logged.uri, before, result.sweep_id, result.best_trial)


def _promote_final(
    view: SweepView, store: MLflowStore, name: str, alias: str, even_if_worse: bool
) -> Promotion:
    """Give an alias to the latest retrained model."""
    with store.clear_errors("MLflow refuses"):
        client = store.client
        run_id = client.get_run(store.parent_run_id).data.tags.get(RETRAINED)
        registry = ModelRegistry(client, run_id) if run_id else None
        logged = registry.latest_model() if registry else None
        if run_id is None or registry is None or logged is None:
            raise InvalidSettingsError(
                f"{view.sweep_id} has no final model in MLflow: train one with `tune-tf retrain`"
            )
        trial = view.trial(logged.tags[TRIAL_ID_TAG]).result
        worse = client.get_run(run_id).data.tags.get(RETRAINED_WORSE)
        if worse and not even_if_worse:
            raise InvalidSettingsError(
                f"the final model of {view.sweep_id} (MLflow run {run_id}) tests worse than trial "
                f"{trial.number}: {worse}. Promote the best model of the sweep (leave out "
                "--retrained), retrain with other --epochs, or add --even-if-worse"
            )
        final = FinalModel(view.sweep_id, trial.trial_id, run_id, logged.tags)
        uri = f"models:/{logged.model_id}"
        version_uri = registry.version_of(logged, name) or registry.register(final, uri, name, None)
        before = registry.set_alias(version_uri, alias)
    return Promotion(f"models:/{name}@{alias}", version_uri, uri, before, view.sweep_id, trial)
