"""Final model of a sweep, and its MLflow run."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from tune_tf.formatting import value_text
from tune_tf.objective import Objective
from tune_tf.outcome import is_finite
from tune_tf.parallelism import Parallelism
from tune_tf.results import TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep.mlflow_store import MLflowStore, store_error_text
from tune_tf.tracking.names import mlflow_params
from tune_tf.tracking.registry import log_model
from tune_tf.tracking.writing.run_update import DESCRIPTION_TAG, SWEEP_ID_TAG, TRIAL_ID_TAG

_log = logging.getLogger(__name__)

RetrainRows = Literal["train+validation", "train"]
EpochMetrics = dict[int, tuple[int, Mapping[str, float]]]
"""Time in milliseconds since 1970 and metrics, by epoch."""

RETRAINED = "tune_tf.retrained_run_id"
"""Tag on the runs of sweep and trial: id of the final model's run."""

RETRAINED_WORSE = "tune_tf.retrained_worse"
"""Tag on the final model's run if it tests worse than the trial's own model: both values."""

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
    folder: Path,
    epochs: EpochMetrics,
    start_ms: int,
) -> FinalModelResult:
    """Record a final model, saved in ``folder``, and link it from the runs of sweep and trial.

    Returns the result with its ids. A failure only logs a warning, as the model is on disk.
    """
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException

    client, trial = store.client, result.trial
    note = (
        f"The config of trial {trial.number} of {result.sweep_id}, trained for "
        f"{result.num_epochs} epochs on the rows of {result.on.replace('+', ' and ')}."
    )
    tags = {
        "tune_tf.retrained_sweep_id": result.sweep_id,
        "tune_tf.retrained_trial_id": trial.trial_id,
        "tune_tf.retrained_on": result.on,
        "tune_tf.parallelism": str(result.parallelism),
        DESCRIPTION_TAG: note,
    }
    if result.comparison is not None and result.comparison.is_worse:
        tags[RETRAINED_WORSE] = str(result.comparison)
        tags[DESCRIPTION_TAG] += f" It tests worse: {result.comparison}."
    params = {name: mask_secrets(text) for name, text in mlflow_params(trial.config).items()}
    trial_run_id = store.run_ids.get(trial.trial_id)
    try:
        parent = client.get_run(store.parent_run_id).info
        run = client.create_run(parent.experiment_id, start_ms, tags, result.path.name).info
        for name, text in params.items():
            client.log_param(run.run_id, name, text)
        for epoch, (time_ms, metrics) in epochs.items():
            points = [Metric(name, value, time_ms, epoch) for name, value in metrics.items()]
            client.log_batch(run.run_id, points)
        origin = {SWEEP_ID_TAG: result.sweep_id, TRIAL_ID_TAG: trial.trial_id}
        name = "retrained_model"
        uri = log_model(client, run.run_id, folder, name=name, tags=origin, params=params)
        client.set_terminated(run.run_id)
        for origin_id in filter(None, (store.parent_run_id, trial_run_id)):
            client.set_tag(origin_id, RETRAINED, run.run_id)
    except (MlflowException, OSError) as error:
        text = store_error_text(error, store.tracking_uri)
        _log.warning("MLflow did not accept the run: %s; the model is in %s", text, result.path)
        return result
    return replace(result, mlflow_run_id=run.run_id, model_uri=uri)
