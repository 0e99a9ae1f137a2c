"""Results of a sweep and its trials as plain data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tune_tf.config import SweepConfig, import_workload
from tune_tf.constraint import Constraint
from tune_tf.errors import (
    CheckpointError,
    InvalidSettingsError,
    UnknownMetricError,
)
from tune_tf.formatting import counted, value_text
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_first, pareto_front
from tune_tf.record import SweepFingerprint
from tune_tf.remote_storage import CheckpointLocation
from tune_tf.result_keys import is_machine_metric, reported_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.space.parameter import is_number

if TYPE_CHECKING:
    import keras
    import pandas as pd

    from tune_tf.training.export import FileFormat

_FORMATS: "Final[Mapping[str, FileFormat]]" = {
    ".keras": "keras",
    "": "saved_model",
    ".tflite": "tflite",
}
"""Format of an exported model, by the suffix of its path."""


@dataclass(frozen=True)
class TrialResult:
    """Result of one trial.

    Args:
        trial_id: Ray Tune's id.
        number: Position in the order of proposal, from 0.
        config: Sampled values, nested like the space.
        outcome: Outcome; None if the trial has not ended.
        cause: Cause of the outcome, if known.
        iterations: Number of completed iterations.
        metrics: Metrics of the epoch that it keeps: the last one, or the best one (``keep``).
        checkpoint: Folder of the last checkpoint, which also holds the state of the kept epoch, or
            its URI in remote storage.
        feasible: Whether these metrics satisfy the sweep's constraints.
        checkpoints_removed: Whether ``keep_checkpoints`` removed its checkpoints.
        kept_iteration: Iteration that it keeps; 0 without a result.
        test_metrics: Metrics on ``Data.test``, such as ``test_loss``, of the trial whose model was
            logged as the best; empty for others, and without test rows.
    """

    trial_id: str
    number: int
    config: Mapping[str, Any]
    outcome: Outcome | None
    cause: str | None = None
    iterations: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: CheckpointLocation | None = None
    feasible: bool = True
    checkpoints_removed: bool = False
    kept_iteration: int = 0
    test_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def keeps_earlier(self) -> bool:
        """Whether it keeps an earlier iteration than its last one."""
        return 0 < self.kept_iteration < self.iterations

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the outcome and the checkpoint as text."""
        outcome = self.outcome.value if self.outcome else None
        checkpoint = None if self.checkpoint is None else str(self.checkpoint)
        return {**vars(self), "outcome": outcome, "checkpoint": checkpoint}


def kept_metrics(
    last: Mapping[str, Any], constraints: Sequence[Constraint], objectives: Sequence[Objective]
) -> dict[str, float]:
    """Return the metrics in the flat result that a trial keeps.

    Metrics of the machine's load are dropped unless a constraint or an objective names them.
    """
    referenced = {each.metric for each in constraints} | {each.metric for each in objectives}
    return {
        name: float(value)
        for name, value in reported_metrics(last).items()
        if is_number(value) and (name in referenced or not is_machine_metric(name))
    }


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

    Args:
        sweep_id: Name of the sweep's folder.
        base_dir: Folder that relative paths in the settings start from.
        trials: Ordered by number.
        mlflow_run_id: Id of the sweep's parent run in MLflow, if any.
        ended_early: Why the sweep ended before all its trials, such as "its budget of 90 epochs
            is spent"; None if it did not.
        search_finished: Whether all trials were proposed before it was interrupted.
        fingerprint: Fingerprint of a reproducible sweep when it last ended or was interrupted.
    """

    sweep_id: str
    path: Path
    config: SweepConfig
    base_dir: Path
    trials: tuple[TrialResult, ...]
    mlflow_run_id: str | None = None
    ended_early: str | None = None
    search_finished: bool = True
    fingerprint: SweepFingerprint | None = None

    @property
    def objective(self) -> Objective:
        """The objective, or the leading one of several."""
        return self.config.leading_objective

    @property
    def report_path(self) -> Path:
        """Path of the HTML report."""
        return self.path / "report" / "report.html"

    @property
    def interrupted(self) -> bool:
        """Whether a resume would run trials."""
        unfinished = any(trial.outcome in (None, Outcome.INTERRUPTED) for trial in self.trials)
        return unfinished or not self.search_finished

    @cached_property
    def best_first(self) -> tuple[TrialResult, ...]:
        """The feasible trials with a finite value, best first; completed ones take precedence."""
        metric = self.objective.metric
        candidates = (
            Candidate(trial, trial.outcome, trial.metrics.get(metric), trial.feasible)
            for trial in self.trials
        )
        return tuple(each.key for each in best_first(candidates, self.objective))

    @property
    def best_if_any(self) -> TrialResult | None:
        """The best trial; None if no feasible trial reported a finite value."""
        return self.best_first[0] if self.best_first else None

    @property
    def best_trial(self) -> TrialResult:
        """The feasible trial with the best kept value; completed trials take precedence.

        Raises:
            UnknownMetricError: No feasible trial reported a finite value.
        """
        best = self.best_if_any
        if best is None:
            infeasible = sum(not trial.feasible for trial in self.trials)
            suffix = f" and satisfied the constraints ({infeasible} did not)" if infeasible else ""
            raise UnknownMetricError(
                f"none of the {len(self.trials)} trials of {self.sweep_id} reported a finite "
                f"{self.objective.metric!r}{suffix}, so none is the best"
                f"{''.join(f'; {failure}' for failure in self.failures)}"
            )
        return best

    @cached_property
    def pareto_front(self) -> tuple[TrialResult, ...]:
        """The feasible completed trials that no other trial dominates, ordered by number.

        With one objective, these are the trials that share the best value.
        """
        points = {
            trial.number: tuple(
                trial.metrics.get(objective.metric, math.nan)
                for objective in self.config.objectives
            )
            for trial in self.trials
            if trial.feasible and trial.outcome is Outcome.COMPLETED
        }
        front = set(pareto_front(points, self.config.objectives))
        return tuple(trial for trial in self.trials if trial.number in front)

    @property
    def best_value(self) -> float:
        """The objective's value of the best trial."""
        return self.objective.value(self.best_trial.metrics)

    @property
    def best_config(self) -> Mapping[str, Any]:
        """The config of the best trial."""
        return self.best_trial.config

    @property
    def best_checkpoint(self) -> CheckpointLocation:
        """Folder of the best trial's last checkpoint, or its URI in remote storage.

        Raises:
            CheckpointError: The trial has no checkpoint.
        """
        checkpoint = self.best_trial.checkpoint
        if checkpoint is None:
            raise CheckpointError(f"trial {self.best_trial.trial_id} has no checkpoint")
        return checkpoint

    def best_model(self) -> "keras.Model":
        """Return the best trial's trained Keras model.

        Raises:
            CheckpointError: The trial has no checkpoint, or it cannot be read.
        """
        from tune_tf.tracking.trial_run import throwaway_run
        from tune_tf.training.export import trained_model  # TensorFlow loads here

        workload = import_workload(self.config.workload, self.base_dir, self.config.data)
        with throwaway_run():
            return trained_model(workload, self.best_config, self.best_checkpoint)

    @cached_property
    def failures(self) -> tuple[str, ...]:
        """Each cause of failed trials once, masked, such as ``3 trials oom: out of memory``."""
        numbers_by_reason: dict[tuple[str, str], list[int]] = {}
        for trial in self.trials:
            if trial.outcome in (Outcome.ERROR, Outcome.OOM, Outcome.DIVERGED) and trial.cause:
                reason = (trial.outcome.value, mask_secrets(trial.cause))
                numbers_by_reason.setdefault(reason, []).append(trial.number)
        return tuple(
            f"{f'{len(numbers)} trials' if len(numbers) > 1 else f'trial {numbers[0]}'} "
            f"{outcome}: {cause}"
            for (outcome, cause), numbers in numbers_by_reason.items()
        )

    def __repr__(self) -> str:
        """Return the sweep's id, number of trials and best value; never its settings."""
        best = ""
        if self.best_if_any is not None:
            value = value_text(self.best_value)
            best = f", best {self.objective.metric} {value} by trial {self.best_trial.number}"
        return f"SweepResult({self.sweep_id!r}, {counted(len(self.trials), 'trial')}{best})"

    def count(self, outcome: Outcome) -> int:
        """Count the trials with an outcome."""
        return sum(trial.outcome is outcome for trial in self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the best trial alone."""
        best = self.best_if_any
        return {
            "sweep_id": self.sweep_id,
            "path": str(self.path),
            "objective": asdict(self.objective),
            "num_samples": self.config.budget.num_samples,
            "trials": {it.value: self.count(it) for it in Outcome if self.count(it)},
            "iterations": sum(trial.iterations for trial in self.trials),
            "interrupted": self.interrupted,
            "ended_early": self.ended_early,
            "best_value": None if best is None else self.best_value,
            "best": None if best is None else best.to_dict(),
            "pareto_front": [trial.number for trial in self.pareto_front],
            "mlflow_run_id": self.mlflow_run_id,
            "fingerprint": asdict(self.fingerprint) if self.fingerprint else None,
        }

    def dataframe(self) -> "pd.DataFrame":
        """Return one row per trial: number, id, outcome, ``config/...`` and metrics."""
        import pandas as pd  # comes with Ray Tune; slow to import

        rows = [
            {
                "number": trial.number,
                "trial_id": trial.trial_id,
                "outcome": trial.outcome.value if trial.outcome else None,
                "iterations": trial.iterations,
                "feasible": trial.feasible,
                **{f"config/{path}": value for path, value in flatten(trial.config).items()},
                **trial.metrics,
            }
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def export_model(self, path: str | Path, trial: TrialResult | None = None) -> Path:
        """Export a trial's trained model for serving without tune_tf.

        :meth:`tune_tf.Workload.serving_model` determines its inputs and outputs.

        Args:
            path: A file ending in ``.keras`` is for ``keras.models.load_model``, one ending in
                ``.tflite`` for LiteRT; without a suffix it is a folder for TensorFlow Serving and
                ``tf.saved_model.load``.
            trial: Trial to export; the best one by default.

        Raises:
            CheckpointError: The trial has no checkpoint, or it cannot be read.
            InvalidSettingsError: The path has another suffix.
            WorkloadError: The model cannot be exported in this format.
        """
        trial = trial or self.best_trial
        if trial.checkpoint is None:
            outcome = f"{trial.outcome.value}; " if trial.outcome else ""
            having = [str(each.number) for each in self.trials if each.checkpoint is not None]
            others = f"trials {', '.join(having)} have one" if having else "no trial has one"
            if trial.checkpoints_removed:
                raise CheckpointError(
                    f"the checkpoint of trial {trial.number} ({trial.trial_id}) was removed: the "
                    f"sweep keeps those of its {self.config.keep_checkpoints} best trials "
                    "(keep_checkpoints in the sweep file; set a larger number or all to keep "
                    f"more); {others}, and `tune-tf retrain {self.path} --trial {trial.number} "
                    "--on train` trains this one's config again"
                )
            raise CheckpointError(
                f"trial {trial.number} ({trial.trial_id}) has no checkpoint to export ({outcome}"
                f"{trial.iterations} iterations); {others}"
            )
        path = Path(path)
        if path.suffix not in _FORMATS:
            raise InvalidSettingsError(
                f"the path must end in .keras or .tflite, or name the folder of a SavedModel, "
                f"without a suffix, not {path}"
            )
        from tune_tf.tracking.trial_run import throwaway_run
        from tune_tf.training.export import export_trained  # TensorFlow loads here

        workload = import_workload(self.config.workload, self.base_dir, self.config.data)
        with throwaway_run():  # the trial's MLflow run already has what build_model logs
            export_trained(workload, trial.config, trial.checkpoint, path, _FORMATS[path.suffix])
        return path
