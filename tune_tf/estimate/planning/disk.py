"""Disk space that a sweep needs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.overhead import MeasuredOverhead
from tune_tf.estimate.planning.schedule_model import SweepUsage
from tune_tf.forecast import Range
from tune_tf.sweep.plan import SweepPlan

# Bytes in the sweep's folder, as Tune, Optuna and the event log write them.
_RESULT_BYTES = 750  # a line in result.json
_TRIAL_BYTES = 26_000  # a trial in Tune's snapshot, the study and the event log
_SWEEP_BYTES = 25_000

# Bytes in MLflow's store.
_POINT_BYTES = 150  # a metric value, with its database index
_NUM_POINTS = 10  # metrics per result
_RUN_BYTES = 15_000  # a trial's run, without metric values
_BEST_MODEL_BYTES = 30_000  # a logged model, without its weights


@dataclass(frozen=True)
class DiskForecast:
    """Expected bytes in the sweep's folder and in MLflow's store.

    Args:
        spent: Usage of simulated sweeps.
        num_to_keep: Checkpoints that Tune keeps per trial; None for all.
        store: Overhead of creating an empty MLflow store; None without tracking.
    """

    plan: SweepPlan
    profiles: ModelProfiles
    trained: Sequence[ModelProfile]
    measured: TrialMeasurements
    spent: Sequence[SweepUsage]
    num_to_keep: int | None
    store: MeasuredOverhead | None
    report: MeasuredOverhead

    @cached_property
    def folder_bytes(self) -> Range:
        """Size of the sweep's folder at its end; the upper bound also holds while trials run."""
        trials = Range.of(each.trials for each in self.spent)
        epochs = Range.of(each.epochs for each in self.spent)
        each, keeping = self._checkpoints_bytes, self._keeping(trials)
        kept = Range(keeping.low * each.low, keeping.likely * each.likely, keeping.high * each.high)
        logs = epochs.times(_RESULT_BYTES) + trials.times(_TRIAL_BYTES)
        return kept + logs + self.closing_bytes + Range.exactly(_SWEEP_BYTES)

    @cached_property
    def mlflow_bytes(self) -> Range:
        """Size of MLflow's store."""
        if self.store is None:
            return Range.exactly(0)
        trials = Range.of(each.trials for each in self.spent).times(_RUN_BYTES)
        points = Range.of(each.epochs for each in self.spent).times(_NUM_POINTS * _POINT_BYTES)
        once = Range.around(self.store.num_bytes, less=1.0, more=0.1)  # the store may already exist
        return once + trials + points + self.closing_bytes

    @cached_property
    def closing_bytes(self) -> Range:
        """Bytes written after the last trial: the report and the best model."""
        return Range.around(self.report.num_bytes + self._model_bytes, less=0.4, more=0.3)

    @cached_property
    def _checkpoints_bytes(self) -> Range:
        """Size of the checkpoints kept per trial."""
        written = [
            max(timing.checkpoint_bytes for timing in timings) for timings in self.measured.timings
        ]
        ratio = sum(written) / max(1, sum(each.state_bytes for each in self.trained))
        sizes = sorted(ratio * each.state_bytes for each in self.profiles.known)
        mean = statistics.fmean(
            ratio * each.state_bytes for each in self.profiles.drawn or self.trained
        )
        kept = []
        interval = self.plan.config.checkpoint_interval_s
        for spent in self.spent:
            took = spent.trial_s / max(1, spent.trials)
            most = spent.epochs / max(1, spent.trials)
            # One at the end of the trial, and one per interval.
            made = 1 + (took // interval if interval else most)
            kept.append(max(1.0, min(made, self.num_to_keep or made)))
        many = Range.of(kept)
        return Range(
            (sizes[0] + mean) / 2 * many.low, mean * many.likely, (sizes[-1] + mean) / 2 * many.high
        )

    def _keeping(self, trials: Range) -> Range:
        """Return how many trials have checkpoints on disk; the upper bound counts running ones."""
        config = self.plan.config
        if config.remote_storage is not None:
            return Range.exactly(0)
        if config.keep_checkpoints == "all":
            return trials
        kept, moving = config.keep_checkpoints, 2 * self.plan.max_concurrent_trials
        return Range(
            min(trials.low, kept), min(trials.likely, kept), min(trials.high, kept + moving)
        )

    @property
    def _model_bytes(self) -> int:
        mlflow = self.plan.config.mlflow
        logged = mlflow is not None and mlflow.log_best_model
        return self.profiles.largest.state_bytes + _BEST_MODEL_BYTES if logged else 0
