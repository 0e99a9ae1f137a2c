"""The best model of a sweep that has ended, in MLflow."""

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
from tune_tf.tracking.runs import connect

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

_FOLDER = "best_model"
_ANSWER_S = 20.0


@dataclass(frozen=True)
class LoggedBestModel:
    """Where MLflow has the best model.

    Args:
        uri: What ``mlflow.keras.load_model`` takes.
        version_uri: The same as a registered version; None if it is not registered.
        folder: The same on disk; None if it was logged before.
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
    """Log a sweep's best model, and register it if that is asked for; never twice.

    Whatever goes wrong is a warning that says what to do: the sweep has its result.

    Args:
        result: The sweep, not interrupted.
        settings: Whether and as what it is registered.
        writer: Writes the model's folder, beside the trials' in the sweep's.
        tracking_uri: Where MLflow keeps the runs.
        run_ids: Trial id to MLflow's id of its run.

    Returns:
        Where MLflow has it; None if there is none, or it could not be logged.
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
        return None  # no trial is the best, as the sweep's report says
    except KeyboardInterrupt:
        reason = "it was interrupted"
    except Exception as error:  # noqa: BLE001  the sweep's result must not be lost with it
        _log.debug("Logging the best model failed", exc_info=error)
        # A store's error may quote the URI that it was reached by.
        text = mask_secrets(str(error).replace(tracking_uri, "the store")).strip()
        reason = text.splitlines()[-1] if text else type(error).__name__
    _log.warning(
        "%s: %s. `tune-tf resume %s` tries again; result.export_model('best.keras') has the model "
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
    """Log a sweep's best model, unless it is logged already.

    Args:
        result: The sweep.
        settings: As what it may be registered.
        writer: Writes the model's folder, if that has to be done.
        tracking_uri: Where MLflow keeps the runs.
        run_ids: Trial id to MLflow's id of its run.

    Returns:
        Which model it is, where MLflow has it, and the runs that name it.

    Raises:
        UnknownMetricError: No trial is the best.
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
        trial_run_id=trial_run_id,
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
            "Loading the best model needs the user's own %s: import %s before, or give "
            "custom_objects to mlflow.keras.load_model",
            ", ".join(written.custom),
            result.config.workload.partition(":")[0],
        )
    best = replace(best, custom=written.custom)
    return best, LoggedBestModel(runs.log(best, written.path), folder=written.path), runs


def _await_answer(client: "MlflowClient", run_id: str) -> None:
    """Ask the store for a run; MLflow itself would go on asking a dead one for minutes.

    Raises:
        StoreUnavailableError: No answer came in time.
    """
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(client.get_run(run_id))
        except Exception as error:  # noqa: BLE001  it is raised where the answer is awaited
            answers.append(error)

    thread = threading.Thread(target=ask, name="tune_tf-best-model", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    if not answers:
        raise StoreUnavailableError("the MLflow store does not answer")
    if isinstance(answers[0], Exception):
        raise answers[0]
