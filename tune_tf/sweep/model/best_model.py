"""Logging and registration of a sweep's best model in MLflow."""

import logging
from collections.abc import Mapping
from pathlib import Path

from mlflow.exceptions import MlflowException

from tune_tf.config import MLflowSettings, import_workload
from tune_tf.errors import InvalidSettingsError, StoreUnavailableError, first_line
from tune_tf.inspection import SweepView
from tune_tf.outcome_rules import error_cause
from tune_tf.record import Record
from tune_tf.results import SweepResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.mlflow_store import store_error_text
from tune_tf.sweep.model.export_process import ModelExportProcess
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.names import mlflow_params
from tune_tf.tracking.registry import (
    BEST_MODEL_TAG,
    BEST_VERSION_TAG,
    log_model,
    logged_model,
    register,
)
from tune_tf.tracking.store import connect
from tune_tf.tracking.tags import SWEEP_ID_TAG, TRIAL_ID_TAG

_log = logging.getLogger(__name__)

_NAME = "best_model"
_CHECKPOINT = "tune_tf.checkpoint"


def log_best_model(
    result: SweepResult,
    settings: MLflowSettings,
    export_process: ModelExportProcess,
    *,
    tracking_uri: str,
    run_ids: Mapping[str, str],
) -> str | None:
    """Log a sweep's best model, and register it if configured; return its URI in MLflow.

    An error becomes a warning with a remedy, as the sweep has its result; it returns None then, and
    without a best trial. ``run_ids`` maps trial ids to those of MLflow runs.
    """
    trial = result.best_if_any
    if trial is None:
        return None  # as the report says
    problem = "The best model was not logged to MLflow"
    try:
        run_id, trial_run_id = result.mlflow_run_id, run_ids.get(trial.trial_id)
        if run_id is None or trial_run_id is None:
            raise StoreUnavailableError("MLflow does not have the runs of this sweep yet")
        client, checkpoint = connect(tracking_uri), result.best_checkpoint
        tags = {
            SWEEP_ID_TAG: result.sweep_id,
            TRIAL_ID_TAG: trial.trial_id,
            "tune_tf.trial_run_id": trial_run_id,
            _CHECKPOINT: mask_secrets(str(checkpoint)),
            "tune_tf.metric": result.objective.metric,
            "tune_tf.value": repr(result.best_value),
        }
        model = logged_model(client, run_id)
        if model is None or model.tags.get(_CHECKPOINT) != tags[_CHECKPOINT]:
            workload = import_workload(result.config.workload, result.base_dir, result.config.data)
            folder = result.path / _NAME
            export_process.write(workload, trial.config, checkpoint, folder, tags)
            params = mlflow_params(trial.config)
            uri = log_model(client, run_id, folder, name=_NAME, tags=tags, params=params)
        else:
            uri = f"models:/{model.model_id}"
        found = {BEST_MODEL_TAG: uri}
        if settings.register_best is not None:
            problem = f"The best model is logged as {uri}, but not registered"
            named = settings.register_best, tags, settings.best_alias
            found[BEST_VERSION_TAG] = register(client, uri, *named)
        for each in (run_id, trial_run_id):
            for key, text in found.items():
                client.set_tag(each, key, text)
        return uri
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


def promote_best(
    sweep: str | Path,
    alias: str = "champion",
    *,
    name: str | None = None,
    storage_path: str | Path = "sweeps",
) -> str:
    """Give an alias to a sweep's best model, registered unless it is; return its version's URI.

    Args:
        sweep: Folder, id or name of the sweep; a name selects its latest sweep.
        alias: Alias; another version of the model that has it loses it.
        name: The registered model; by default ``mlflow.register_best`` of the sweep file, or the
            sweep's name.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        InvalidSettingsError: MLflow has no best model of it, or rejects the name or the alias.
        StoreUnavailableError: MLflow does not answer.
    """
    folder = SweepFolder.open(sweep, storage_path)
    name = name or (folder.config.mlflow or MLflowSettings()).register_best or folder.config.name
    MLflowSettings(register_best=name, best_alias=alias)  # raises for what MLflow rejects
    uri, run_id = folder.tracking_uri, SweepView.open(folder.path).result.mlflow_run_id
    if uri is not None and run_id is not None:
        try:
            client = connect(uri)
            if model := logged_model(client, run_id):
                tags = {SWEEP_ID_TAG: folder.sweep_id, TRIAL_ID_TAG: model.tags[TRIAL_ID_TAG]}
                return register(client, f"models:/{model.model_id}", name, tags, alias)
        except MlflowException as error:
            raise StoreUnavailableError(store_error_text(error, uri)) from None
    raise InvalidSettingsError(
        f"{folder.sweep_id} has no best model in MLflow: with mlflow.log_best_model, it has once "
        f"the sweep has ended; `tune-tf resume {folder.path}` logs it later"
    )


def evaluate_best(result: SweepResult, export_process: ModelExportProcess, record: Record) -> None:
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
            record.record_test(best.trial_id, metrics)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the sweep has its result
        _log.debug("Evaluating the best model failed", exc_info=error)
        text = first_line(getattr(error, "cause", None) or error)
        _log.warning("The best model was not evaluated on the test rows: %s", text)
