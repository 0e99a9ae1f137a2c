"""Final model of a sweep, and its MLflow run."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from tune_tf.formatting import value_text
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.parallelism import Parallelism
from tune_tf.results import TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.mlflow_store import MLflowStore, store_error_text
from tune_tf.sweep.model.export_actor import ModelFolder
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
    now_ms,
)

_log = logging.getLogger(__name__)

RetrainRows = Literal["train+validation", "train"]

RETRAINED = "tune_tf.retrained_run_id"
"""Tag on the runs of sweep and trial: id of the final model's run."""

RETRAINED_SWEEP = "tune_tf.retrained_sweep_id"
RETRAINED_TRIAL = "tune_tf.retrained_trial_id"
RETRAINED_TRIAL_RUN = "tune_tf.retrained_trial_run_id"
RETRAINED_ON = "tune_tf.retrained_on"
"""Tags on the final model's run: origin of its config, and its training rows."""

RETRAINED_WORSE = "tune_tf.retrained_worse"
"""Tag on the final model's run if it tests worse than the trial's own model: both values."""

_NAME = "retrained_model"
_ROUND_OFF = 1e-4  # relative: training on the same rows again differs by that


@dataclass(frozen=True)
class ModelComparison:
    """A final model and the model of the trial it was trained from, on the same test rows.

    Args:
        objective: Test metric, such as ``test_accuracy``, and which value is better.
        final: Its value for the final model.
        trial: Its value for the trial's own model.
    """

    objective: Objective
    final: float
    trial: float

    @classmethod
    def of(
        cls, objective: Objective, final: Mapping[str, float], trial: Mapping[str, float]
    ) -> Self | None:
        """Compare by the objective's metric on the test rows, else by their loss, if reported."""
        metric = f"test_{objective.metric.removeprefix('val_')}"
        for each in (Objective(metric, objective.mode), Objective("test_loss", "min")):
            if each.metric in final and each.metric in trial:
                return cls(each, final[each.metric], trial[each.metric])
        return None

    @property
    def is_worse(self) -> bool:
        """Whether the final model is worse, by more than round-off."""
        if not (is_finite(self.final) and is_finite(self.trial)):
            return is_finite(self.trial)
        is_close = math.isclose(self.final, self.trial, rel_tol=_ROUND_OFF)
        return self.objective.better(self.trial, self.final) and not is_close

    def __str__(self) -> str:
        """Return ``test_accuracy 0.75, the trial's own model 0.81``."""
        final, trial = value_text(self.final), value_text(self.trial)
        return f"{self.objective.metric} {final}, the trial's own model {trial}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "metric": self.objective.metric,
            "final": self.final,
            "trial": self.trial,
            "is_worse": self.is_worse,
        }


@dataclass(frozen=True)
class FinalModelResult:
    """Final model of a sweep, trained with the config of one of its trials."""

    sweep_id: str
    trial: TrialResult
    on: RetrainRows
    path: Path  # folder with the model in MLflow's format, the checkpoint and the results
    model_path: Path  # a .keras file
    metrics: Mapping[str, float]  # of the last epoch, and test_... of the test rows
    num_epochs: int
    parallelism: Parallelism
    comparison: ModelComparison | None = None  # None without test rows or the trial's checkpoint
    mlflow_run_id: str | None = None
    model_uri: str | None = None  # for mlflow.keras.load_model


def record_final_model(
    result: FinalModelResult,
    store: MLflowStore,
    model: ModelFolder,
    reports: Sequence[Report],
    started: datetime,
) -> FinalModelResult:
    """Record a final model and link it from the runs of sweep and trial; return it with its ids.

    A failure only logs a warning, as the model is on disk.
    """
    from mlflow.exceptions import MlflowException

    try:
        update = _run_update(result, reports, started)
        run_id, uri = _write_run(result, store, model, update)
    except (MlflowException, OSError) as error:
        text = store_error_text(error, store.tracking_uri)
        _log.warning("MLflow did not accept the run: %s; the model is in %s", text, result.path)
        return result
    return replace(result, mlflow_run_id=run_id, model_uri=uri)


def _write_run(
    result: FinalModelResult, store: MLflowStore, model: ModelFolder, update: RunUpdate
) -> tuple[str, str]:
    client, trial = store.client, result.trial
    params = {name: mask_secrets(text) for name, text in mlflow_params(trial.config).items()}
    trial_run_id = store.run_ids.get(trial.trial_id)
    update.params.update(params)
    if trial_run_id:
        update.tags[RETRAINED_TRIAL_RUN] = trial_run_id
    tracked = TrackedSweep(result.path.name, store.tracking_uri, store.experiment_name)
    runs = SweepRuns(client, tracked)
    runs.write(update)
    run_id = runs.run_ids[PARENT]
    origin = {SWEEP_ID_TAG: result.sweep_id, TRIAL_ID_TAG: trial.trial_id, RETRAINED_ON: result.on}
    uri = log_model(client, run_id, model.path, name=_NAME, tags=origin, params=params)
    client.set_tag(run_id, BEST_MODEL_TAG, uri)
    for origin_id in (store.parent_run_id, trial_run_id):
        if origin_id is not None:
            client.set_tag(origin_id, RETRAINED, run_id)
    return run_id, uri


def _run_update(
    result: FinalModelResult, reports: Sequence[Report], started: datetime
) -> RunUpdate:
    note = (
        f"The config of trial {result.trial.number} of {result.sweep_id}, trained for "
        f"{result.num_epochs} epochs on the rows of {result.on.replace('+', ' and ')}."
    )
    is_worse = result.comparison is not None and result.comparison.is_worse
    if is_worse:
        note += f" It tests worse: {result.comparison}."
    return RunUpdate(
        PARENT,
        round(started.timestamp() * 1000),
        name=result.path.name,
        tags={
            RETRAINED_SWEEP: result.sweep_id,
            RETRAINED_TRIAL: result.trial.trial_id,
            RETRAINED_ON: result.on,
            "tune_tf.parallelism": str(result.parallelism),
            STOP_REASON_TAG: Outcome.COMPLETED.value,
            DESCRIPTION_TAG: note,
            **({RETRAINED_WORSE: str(result.comparison)} if is_worse else {}),
        },
        reports=[*reports],
        status=Outcome.COMPLETED.mlflow,
        end_ms=now_ms(),
    )
