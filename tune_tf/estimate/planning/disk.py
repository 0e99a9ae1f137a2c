"""What a sweep leaves on the disk."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tune_tf.estimate.planning.measure_trials import Measured
from tune_tf.estimate.planning.model_profiles import ModelProfile, ModelProfiles
from tune_tf.estimate.planning.overhead import MeasuredOverhead
from tune_tf.estimate.planning.schedule_model import Spent
from tune_tf.forecast import Range
from tune_tf.sweep.plan import SweepPlan

# Bytes in the sweep's folder, as Tune, Optuna and the diary write them.
_RESULT_BYTES = 750  # a line in result.json
_TRIAL_BYTES = 26_000  # a trial in Tune's snapshot, the study and the diary
_SWEEP_BYTES = 25_000

# Bytes in MLflow's store.
_POINT_BYTES = 150  # a metric's point, with its index
_NUM_POINTS = 10  # metrics of a result
_RUN_BYTES = 15_000  # a trial's run, without points
_BEST_MODEL_BYTES = 30_000  # a logged model, beside its weights


@dataclass(frozen=True)
class Disk:
    """Bytes in the sweep's folder and in MLflow's store.

    Args:
        plan: What the sweep would do.
        survey: The models of the space.
        facts: Those that were trained.
        measured: What came of these.
        spent: What simulated sweeps spend.
        num_to_keep: Checkpoints of a trial that Tune keeps; None for all.
        store: What MLflow took to make an empty store; None without tracking.
        report: What the report took.
    """

    plan: SweepPlan
    survey: ModelProfiles
    facts: Sequence[ModelProfile]
    measured: Measured
    spent: Sequence[Spent]
    num_to_keep: int | None
    store: MeasuredOverhead | None
    report: MeasuredOverhead

    @cached_property
    def folder_bytes(self) -> Range:
        """Of the sweep's folder at its end; at most, while trials run."""
        trials = Range.of(each.trials for each in self.spent)
        epochs = Range.of(each.epochs for each in self.spent)
        each, keeping = self._checkpoints_bytes, self._keeping(trials)
        kept = Range(keeping.low * each.low, keeping.likely * each.likely, keeping.high * each.high)
        told = epochs.times(_RESULT_BYTES) + trials.times(_TRIAL_BYTES)
        return kept + told + self.closing_bytes + Range.exactly(_SWEEP_BYTES)

    @cached_property
    def mlflow_bytes(self) -> Range:
        """Of MLflow's store, on whatever disk that is."""
        if self.store is None:
            return Range.exactly(0)
        trials = Range.of(each.trials for each in self.spent).times(_RUN_BYTES)
        points = Range.of(each.epochs for each in self.spent).times(_NUM_POINTS * _POINT_BYTES)
        once = Range.around(self.store.num_bytes, less=1.0, more=0.1)  # it may be there already
        return once + trials + points + self.closing_bytes

    @cached_property
    def closing_bytes(self) -> Range:
        """Of what is written after the last trial: the report and the best model."""
        return Range.around(self.report.num_bytes + self._model_bytes, less=0.4, more=0.3)

    @cached_property
    def _checkpoints_bytes(self) -> Range:
        """Size of the checkpoints that are kept of a trial."""
        written = [max(turn.checkpoint_bytes for turn in turns) for turns in self.measured.turns]
        ratio = sum(written) / max(1, sum(each.state_bytes for each in self.facts))
        sizes = sorted(ratio * each.state_bytes for each in self.survey.known)
        mean = statistics.fmean(
            ratio * each.state_bytes for each in self.survey.drawn or self.facts
        )
        kept = []
        interval = self.plan.config.checkpoint_interval_s
        for spent in self.spent:
            took = spent.trial_s / max(1, spent.trials)
            most = spent.epochs / max(1, spent.trials)
            # One at its end, and one each time that the interval is over.
            made = 1 + (took // interval if interval else most)
            kept.append(max(1.0, min(made, self.num_to_keep or made)))
        many = Range.of(kept)
        return Range(
            (sizes[0] + mean) / 2 * many.low, mean * many.likely, (sizes[-1] + mean) / 2 * many.high
        )

    def _keeping(self, trials: Range) -> Range:
        """Return how many trials have checkpoints on the disk; at most, while they run, more."""
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
        return self.survey.largest.state_bytes + _BEST_MODEL_BYTES if logged else 0
