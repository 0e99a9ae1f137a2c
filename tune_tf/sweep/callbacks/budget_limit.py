"""Budget limits of a running sweep, and what it has spent."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.ranking import kept_result
from tune_tf.record import Record, SweepHistory
from tune_tf.sweep.stopper import SweepStopper
from tune_tf.trial_observer import TrialObserver
from tune_tf.tune_internals.trial_state import EndedTrials, latest_result

_HOUR_S = 3600
_RECORD_EVERY_S = 1.0
_TRIED = frozenset({Outcome.COMPLETED, Outcome.PRUNED})


@dataclass
class Spending:
    """Epochs, with repeated ones, time and reserved hours over all sessions of a sweep."""

    epochs: int = 0
    time_s: float = 0.0
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0


class BudgetLimit(Callback):
    """Tune callback that ends a sweep when its budget is spent or its search has converged.

    Args:
        decided_end: Returns outcome and cause of a trial that the scheduler has ended, by its id.
        record: Of the sweep; what it has spent is continued from there, and recorded.
    """

    def __init__(
        self,
        config: SweepConfig,
        stopper: SweepStopper,
        observer: TrialObserver,
        clock: Callable[[], float] = time.monotonic,
        decided_end: Callable[[str], tuple[Outcome, str | None] | None] = lambda trial_id: None,
        record: Record | None = None,
    ) -> None:
        self._config = config
        self._decided_end = decided_end
        self._stopper = stopper
        self._observer = observer
        self._clock = clock
        self._record = record
        self._counted_s = self._recorded_s = clock()
        self._running: dict[str, Trial] = {}
        self.spending = Spending()
        self._ends = EndedTrials()
        self._without_outcome: list[Trial] = []
        self._best: float | None = None
        self._num_without_gain = 0
        if record is not None:
            self._restore(record.history)

    def _restore(self, history: SweepHistory) -> None:
        """Continue from earlier sessions; what ended those with another budget does not count."""
        *earlier, session = history.sessions
        self.spending = Spending(
            history.num_results, session.time_s, session.cpu_hours, session.gpu_hours
        )
        since_s = session.begun_s
        for each in reversed(earlier):
            if each.budget != session.budget:
                break
            since_s = each.begun_s
            if not self._config.reproducible:  # else it follows from the results
                self._stopper.reason = self._stopper.reason or each.ended_early
        ended = [trial for trial in history.trials.values() if not trial.goes_on]
        for trial in sorted(ended, key=lambda trial: trial.ended_s or 0.0):
            last = flatten_dict(dict(trial.last))
            self._count_end(trial.outcome, last)
            if (trial.ended_s or 0.0) < since_s:
                self._num_without_gain = 0
            else:
                self._stopper(trial.trial_id, last)

    def setup(self, *args: Any, **info: Any) -> None:
        """Start counting."""
        self._counted_s = self._clock()
        self._stopper.add_check(self.check)

    def on_trial_start(self, trial: Trial, **info: Any) -> None:
        """Count the resources of the trial."""
        self._count()
        self._running[trial.trial_id] = trial
        self._stopper.mark_closed(trial.trial_id)

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Count the iteration; add outcome and cause to the last result of a stopped trial."""
        self.spending.epochs += 1
        if not result.get("done"):
            return
        self._stopper.mark_closing(trial.trial_id)
        trial_id = trial.trial_id
        if end := self._stopper.trial_ends.get(trial_id) or self._decided_end(trial_id):
            outcome, cause = end
            result.setdefault(STOP_REASON, outcome.value)
            if cause:
                result.setdefault(STOP_CAUSE, cause)

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Note that Tune has finished with the trial."""
        self._stopper.mark_closed(trial.trial_id)

    on_trial_error = on_trial_complete

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """End the sweep if the last trials brought no improvement; record what it has spent."""
        if not self._config.reproducible and (reason := self._converged(trials)):
            self._stopper.end(reason)
        if self._record is None:
            return
        if self._stopper.reason is not None:
            self._record.record_end_reason(self._stopper.reason)
        if self._clock() - self._recorded_s >= _RECORD_EVERY_S:
            self._recorded_s = self._clock()
            spent = self.spending
            self._record.record_spending(spent.time_s, spent.cpu_hours, spent.gpu_hours)

    def check(self) -> None:
        """End the sweep if its budget is spent."""
        self._count()
        if reason := self._spent():
            self._stopper.end(reason)

    def _count(self) -> None:
        """Add the time since the last count, then drop stopped trials."""
        now = self._clock()
        elapsed_s, self._counted_s = now - self._counted_s, now
        self.spending.time_s += elapsed_s
        for trial_id, trial in list(self._running.items()):
            reserved = trial.placement_group_factory.required_resources
            self.spending.cpu_hours += elapsed_s / _HOUR_S * reserved.get("CPU", 0)
            self.spending.gpu_hours += elapsed_s / _HOUR_S * reserved.get("GPU", 0)
            if trial.status != Trial.RUNNING:
                del self._running[trial_id]

    def _spent(self) -> str | None:
        if self._config.reproducible:
            return None  # decided in the order of results
        budget, spent = self._config.budget, self.spending
        for limit, so_far, what in (
            (budget.epochs, spent.epochs, "epochs"),
            (budget.time_budget_s, spent.time_s, "seconds"),
            (budget.cpu_hours, spent.cpu_hours, "CPU-hours"),
            (budget.gpu_hours, spent.gpu_hours, "GPU-hours"),
        ):
            if limit is not None and so_far >= limit:
                return f"its budget of {limit:.10g} {what} is spent"
        return None

    def _converged(self, trials: list[Trial]) -> str | None:
        """Count the trials without improvement; return the reason to end, if any."""
        patience = self._config.budget.patience
        if patience is None:
            return None
        ended, self._without_outcome = [*self._without_outcome, *self._ends.take(trials)], []
        for trial in ended:
            outcome = self._observer.outcomes.get(trial.trial_id)
            if outcome is None:
                self._without_outcome.append(trial)
            else:
                self._count_end(outcome, latest_result(trial))
        if self._num_without_gain < patience:
            return None
        metric = self._config.leading_objective.metric
        better = "completed" if self._best is None else f"improved {metric} beyond {self._best:.6g}"
        return f"none of the last {self._num_without_gain} trials {better}"

    def _count_end(self, outcome: Outcome | None, result: Mapping[str, Any]) -> None:
        if outcome in _TRIED:
            gain = outcome is Outcome.COMPLETED and self._is_gain(result)
            self._num_without_gain = 0 if gain else self._num_without_gain + 1

    def _is_gain(self, result: Mapping[str, Any]) -> bool:
        objective, last = self._config.leading_objective, kept_result(result)
        value: float = last.get(objective.metric, math.nan)
        if not is_finite(value) or not is_feasible(self._config.constraints, last):
            return False
        if self._best is not None and not objective.better(value, self._best):
            return False
        self._best = value
        return True
