"""Logging and registration of a sweep's best model in MLflow."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.config import MLflowSettings, import_workload
from tune_tf.errors import CheckpointError, StoreUnavailableError, UnknownMetricError
from tune_tf.results import SweepResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.tracking.names import mlflow_params
from tune_tf.tracking.registry import BestModel, BestModelRuns
from tune_tf.tracking.store import connect

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

_FOLDER = "best_model"
_ANSWER_S = 20.0


@dataclass(frozen=True)
class LoggedBestModel:
    """Best model in MLflow.

    Args:
        uri: URI for ``mlflow.keras.load_model``.
        version_uri: URI of its registered version; None if it is not registered.
        folder: Local copy; None if the model was logged before.
    """

    uri: str
    version_uri: str | None = None
    folder: Path | None = None


def log_best_model(
    result: SweepResult,
    settings: MLflowSettings,
    writer: ModelExportProcess,
    *,
    tracking_uri: str,
    run_ids: Mapping[str, str],
) -> LoggedBestModel | None:
    """Log a sweep's best model and register it if configured; never twice.

    An error becomes a warning with a remedy, as the sweep has its result. The sweep must not be
    interrupted. ``run_ids`` maps trial ids to those of MLflow runs.

    Returns:
        The logged model; None if no best trial exists or logging failed.
    """
    problem = "The best model was not logged to MLflow"
    try:
        best, logged, runs = logged_best(result, settings, writer, tracking_uri, run_ids)
        problem = f"The best model is logged as {logged.uri}, but not registered"
        if settings.register_best is None or logged.version_uri is not None:
            return logged
        version = runs.register(best, logged.uri, settings.register_best, settings.best_alias)
        return replace(logged, version_uri=version)
    except UnknownMetricError:
        return None  # no best trial, as the report says
    except KeyboardInterrupt:
        reason = "it was interrupted"
    except Exception as error:  # noqa: BLE001  the sweep's result must not be lost with it
        _log.debug("Logging the best model failed", exc_info=error)
        # A store's error may quote its URI, which may hold a password.
        text = mask_secrets(str(error).replace(tracking_uri, "the store")).strip()
        reason = text.splitlines()[-1] if text else type(error).__name__
    _log.warning(
        "%s: %s. `tune-tf resume %s` tries again; result.export_model('best.keras') exports it "
        "without MLflow.",
        problem,
        reason,
        result.path,
    )
    return None


def logged_best(
    result: SweepResult,
    settings: MLflowSettings,
    writer: ModelExportProcess,
    tracking_uri: str,
    run_ids: Mapping[str, str],
) -> tuple[BestModel, LoggedBestModel, BestModelRuns]:
    """Log a sweep's best model unless it is logged already.

    Returns:
        The model, its place in MLflow, and the runs that refer to it.

    Raises:
        UnknownMetricError: No feasible trial reported a finite value.
        StoreUnavailableError: MLflow does not answer, or has no runs of the sweep.
        CheckpointError: The best trial has no checkpoint.
    """
    trial = result.best_trial
    trial_run_id = run_ids.get(trial.trial_id)
    if result.mlflow_run_id is None or trial_run_id is None:
        raise StoreUnavailableError("MLflow does not have the runs of this sweep yet")
    if trial.checkpoint is None:
        raise CheckpointError(f"trial {trial.trial_id} has no checkpoint")
    best = BestModel(
        sweep_id=result.sweep_id,
        trial_id=trial.trial_id,
        run_id=trial_run_id,
        checkpoint=str(trial.checkpoint),
        metric=result.objective.metric,
        value=result.best_value,
        params=mlflow_params(trial.config),
    )
    client = connect(tracking_uri)
    _await_answer(client, result.mlflow_run_id)
    runs = BestModelRuns(client, result.mlflow_run_id)
    known = runs.latest_model()
    if known is not None and best.matches(known.tags):
        uri = f"models:/{known.model_id}"
        runs.keep(best, uri)
        version = settings.register_best and runs.version_of(known, settings.register_best)
        return best, LoggedBestModel(uri, version), runs
    written = writer.write(
        import_workload(result.config.workload, result.base_dir, result.config.data),
        trial.config,
        trial.checkpoint,
        result.path / _FOLDER,
        best.tags,
    )
    if written.custom:
        _log.info(
            "Loading the best model needs the custom %s: import %s first, or pass custom_objects "
            "to mlflow.keras.load_model",
            ", ".join(written.custom),
            result.config.workload.partition(":")[0],
        )
    best = replace(best, custom=written.custom)
    return best, LoggedBestModel(runs.log(best, written.path), folder=written.path), runs


def _await_answer(client: "MlflowClient", run_id: str) -> None:
    """Check that the store answers; MLflow itself retries a dead one for minutes.

    Raises:
        StoreUnavailableError: No answer came in time.
    """
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(client.get_run(run_id))
        except Exception as error:  # noqa: BLE001  raised below, in the waiting thread
            answers.append(error)

    thread = threading.Thread(target=ask, name="tune_tf-best-model", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    if not answers:
        raise StoreUnavailableError("the MLflow store does not answer")
    if isinstance(answers[0], Exception):
        raise answers[0]
