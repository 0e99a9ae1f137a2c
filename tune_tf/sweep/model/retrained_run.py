"""MLflow run of a final model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tune_tf.errors import StoreUnavailableError
from tune_tf.outcome import Outcome
from tune_tf.parallelism import Parallelism
from tune_tf.results import TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.mlflow_store import MLflowStore
from tune_tf.sweep.model.export_process import ModelFolder
from tune_tf.tracking.names import mlflow_params
from tune_tf.tracking.registry import BEST_MODEL_TAG, log_model
from tune_tf.tracking.runs import SweepRuns, TrackedSweep
from tune_tf.tracking.writing.run_update import (
    DESCRIPTION_TAG,
    PARENT,
    STOP_REASON_TAG,
    SWEEP_ID_TAG,
    TRIAL_ID_TAG,
    Report,
    RunUpdate,
)

RETRAINED = "tune_tf.retrained_run_id"
"""Tag on the runs of sweep and trial: id of the final model's run."""

RETRAINED_SWEEP = "tune_tf.retrained_sweep_id"
RETRAINED_TRIAL = "tune_tf.retrained_trial_id"
RETRAINED_TRIAL_RUN = "tune_tf.retrained_trial_run_id"
RETRAINED_ON = "tune_tf.retrained_on"
"""Tags on the final model's run: origin of its config, and its training rows."""

_NAME = "retrained_model"


@dataclass(frozen=True)
class FinalModelRun:
    """Content of a final model's run.

    Args:
        trial: Trial whose config was used.
        on: Rows used for training.
        points: Epoch, milliseconds since 1970 and metrics of each report.
    """

    name: str
    sweep_id: str
    trial: TrialResult
    on: str
    parallelism: Parallelism
    points: tuple[tuple[int, int, Mapping[str, float]], ...]
    test_metrics: Mapping[str, float]
    started: datetime


def record_final_model(
    retrained: FinalModelRun, model: ModelFolder, store: MLflowStore
) -> tuple[str, str]:
    """Record a final model and link it from the runs of sweep and trial.

    Returns:
        MLflow's id of the run, and the model's URI.

    Raises:
        StoreUnavailableError: The store rejects the run or does not answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        return _write_run(retrained, model, store)
    except (MlflowException, OSError) as error:
        text = mask_secrets(str(error).replace(store.tracking_uri, "the store")).strip()
        raise StoreUnavailableError(f"MLflow did not accept the run: {text}") from error


def _write_run(retrained: FinalModelRun, model: ModelFolder, store: MLflowStore) -> tuple[str, str]:
    client, trial = store.client, retrained.trial
    params = {name: mask_secrets(text) for name, text in mlflow_params(trial.config).items()}
    trial_run_id = store.run_ids.get(trial.trial_id)
    lineage = {
        RETRAINED_SWEEP: retrained.sweep_id,
        RETRAINED_TRIAL: trial.trial_id,
        **({RETRAINED_TRIAL_RUN: trial_run_id} if trial_run_id else {}),
        RETRAINED_ON: retrained.on,
    }
    runs = SweepRuns(
        client, TrackedSweep(retrained.name, store.tracking_uri, store.experiment_name)
    )
    runs.write(_run_update(retrained, params, lineage))
    run_id = runs.run_ids[PARENT]
    origin = {
        SWEEP_ID_TAG: retrained.sweep_id,
        TRIAL_ID_TAG: trial.trial_id,
        RETRAINED_ON: retrained.on,
    }
    uri = log_model(client, run_id, model.path, name=_NAME, tags=origin, params=params)
    client.set_tag(run_id, BEST_MODEL_TAG, uri)
    for origin_id in (store.parent_run_id, trial_run_id):
        if origin_id is not None:
            client.set_tag(origin_id, RETRAINED, run_id)
    return run_id, uri


def _run_update(
    retrained: FinalModelRun, params: Mapping[str, str], lineage: Mapping[str, str]
) -> RunUpdate:
    now_ms = time.time_ns() // 1_000_000
    epoch = retrained.points[-1][0]
    last = [Report(epoch, now_ms, dict(retrained.test_metrics), once=False)]
    number, spread = retrained.trial.number, retrained.parallelism
    note = (
        f"The config of trial {number} of {retrained.sweep_id}, trained for {epoch} epochs on the "
        f"rows of {retrained.on.replace('+', ' and ')}."
    )
    return RunUpdate(
        PARENT,
        round(retrained.started.timestamp() * 1000),
        name=retrained.name,
        params=dict(params),
        tags={
            **lineage,
            "tune_tf.parallelism": str(spread),
            STOP_REASON_TAG: Outcome.COMPLETED.value,
            DESCRIPTION_TAG: note,
        },
        reports=[
            *(Report(step, time_ms, metrics) for step, time_ms, metrics in retrained.points),
            *(last if retrained.test_metrics else []),
        ],
        status=Outcome.COMPLETED.mlflow,
        end_ms=now_ms,
    )
