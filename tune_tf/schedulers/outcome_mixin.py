"""Mixin that records trial outcomes in Ray's schedulers.

Ray Tune asks a scheduler what to do with each result and forgets the reason: a trial that was
stopped early and one that ran to its limit look the same to searchers and callbacks. At the end of
a trial Tune calls the scheduler first, then the searcher, then the callbacks, each with the trial's
last result; so the reason is written there.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.errors import UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause, infer_outcome
from tune_tf.result_keys import TRAINING_ITERATION, training_metrics
from tune_tf.schedulers.state import ResumeMixin

_TRAINABLE_OUTCOMES = (Outcome.COMPLETED, Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR)


def comparison_arguments(objective: Objective) -> dict[str, str]:
    """Return the arguments that tell a Ray scheduler what to compare trials by."""
    return {"time_attr": TRAINING_ITERATION, "metric": objective.metric, "mode": objective.mode}


@dataclass(frozen=True)
class _Stop:
    """Stop decided by this scheduler."""

    outcome: Outcome
    iteration: int
    cause: str | None = None


class OutcomeMixin(ResumeMixin, FIFOScheduler):
    """Mixin for a Ray scheduler: limits trials, stops divergent ones and records outcomes.

    With finite metrics every decision is that of the Ray scheduler.

    Attributes:
        requested_ends: How trials are to end that others than the scheduler end, by id. Running
            ones do with their next result, paused ones at once.
    """

    settings: SchedulerSettings

    def _configure(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Set the settings; the last line of a subclass's ``__init__``."""
        super()._configure(objective, settings)
        self.requested_ends: Mapping[str, tuple[Outcome, str | None]] = {}
        self._stops: dict[str, _Stop] = {}
        self._depth = 0
        self._ending_trials: set[str] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; empty if there are none."""
        return ()

    def next_decision(self, iteration: int) -> int:
        """Return the first iteration, from this one on, whose result may change what happens."""
        return min((rung for rung in self.rungs if rung >= iteration), default=self.settings.epochs)

    def set_search_properties(self, metric: str | None, mode: str | None, **_spec: Any) -> bool:
        """Accept ``tune.run(metric=, mode=)`` if it agrees with the objective.

        Raises:
            InvalidSettingsError: It names another metric or mode.
        """
        self.objective.check_given(metric, mode, "scheduler")
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Set ``epochs`` as the trial's own limit, so that Tune completes it there."""
        trial.stopping_criterion.setdefault(TRAINING_ITERATION, self.settings.epochs)
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler; stop a trial whose metric is not finite.

        Raises:
            UnknownMetricError: The result lacks the metric; names those that it has.
        """
        iteration = int(result.get(TRAINING_ITERATION, 0))
        if decision := self._earlier_decision(trial, iteration):
            return decision
        if self.objective.metric not in result:
            raise UnknownMetricError(self.objective.missing(training_metrics(result)))
        if not is_finite(result[self.objective.metric]):
            cause = self._divergence_cause(result)
            self._stops[trial.trial_id] = _Stop(Outcome.DIVERGED, iteration, cause)
            return TrialScheduler.STOP
        with self._mark_decision():
            decision = super().on_trial_result(tune_controller, trial, result)
        self._stops.pop(trial.trial_id, None)  # it diverged here, and does not when it is repeated
        if decision == TrialScheduler.STOP:
            self._stops[trial.trial_id] = self._stop_at(trial, iteration)
        self._decisions[trial.trial_id] = iteration, decision
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Record the outcome in the trial's last result, then notify Ray's scheduler."""
        self._note_stop(trial)
        self._write_outcome(trial, *self._infer_outcome(trial, result))
        with self._mark_decision(trial):
            if is_finite(result.get(self.objective.metric)):
                super().on_trial_complete(tune_controller, trial, result)
            else:
                super().on_trial_remove(tune_controller, trial)
        self._stops.pop(trial.trial_id, None)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Record the outcome of a paused or pending trial in its last result."""
        # Ray's Hyperband also calls it for a trial that completes or fails.
        if trial.trial_id not in self._ending_trials:
            self._note_stop(trial)
            stop = self._stops.get(trial.trial_id, _Stop(Outcome.OUT_OF_BUDGET, 0))
            self._write_outcome(trial, stop.outcome, stop.cause)
        with self._mark_decision(trial):
            super().on_trial_remove(tune_controller, trial)
        if trial.trial_id not in self._ending_trials:
            self._stops.pop(trial.trial_id, None)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Notify Ray's scheduler of a failed trial, which may end the waiting of others."""
        with self._mark_decision(trial):
            super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial that Ray's scheduler wants to run next; end paused ones as requested."""
        for trial_id, (outcome, cause) in self.requested_ends.items():
            trial = self._trials.get(trial_id)
            if trial is not None and trial.status == Trial.PAUSED:
                iteration = int(trial.last_result.get(TRAINING_ITERATION, 0))
                self._note_outcome(trial, outcome, iteration, cause)
                tune_controller.stop_trial(trial)
        with self._mark_decision():
            return super().choose_trial_to_run(tune_controller, **options)

    def _limit(self, trial: Trial) -> int:
        """Return the iteration at which a trial is complete."""
        return self.settings.epochs

    @contextlib.contextmanager
    def _mark_decision(self, ending: Trial | None = None) -> Iterator[None]:
        """Attribute what Tune stops meanwhile to Ray's scheduler, except for the ending trial."""
        new_ids = {ending.trial_id} - self._ending_trials if ending else set()
        self._ending_trials |= new_ids
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._ending_trials -= new_ids

    def _note_stop(self, trial: Trial) -> None:
        """Record that Ray's scheduler is stopping a trial."""
        if self._depth and trial.trial_id not in self._stops:
            iteration = int(trial.last_result.get(TRAINING_ITERATION, 0))
            self._stops[trial.trial_id] = self._stop_at(trial, iteration)

    def _note_outcome(
        self, trial: Trial, outcome: Outcome, iteration: int, cause: str | None
    ) -> None:
        """Record how a trial ends that is about to be stopped."""
        self._stops[trial.trial_id] = _Stop(outcome, iteration, cause)

    def _stop_at(self, trial: Trial, iteration: int) -> _Stop:
        if iteration >= self._limit(trial):
            return _Stop(Outcome.COMPLETED, iteration)
        return _Stop(Outcome.PRUNED, iteration, self.explain(trial))

    def _write_outcome(self, trial: Trial, outcome: Outcome, cause: str | None) -> None:
        trial.last_result[STOP_REASON] = outcome.value
        trial.last_result.pop(STOP_CAUSE, None)
        if cause:
            trial.last_result[STOP_CAUSE] = cause
        trial.run_metadata.invalidate_cache()

    def _earlier_decision(self, trial: Trial, iteration: int) -> str | None:
        """Return the decision on an iteration that is repeated after a resume; None on a new one.

        Ray's scheduler is done with it: it would decide otherwise this time, or fail.
        """
        decided_at, decision = self._repeated.get(trial.trial_id, (0, None))
        if iteration == decided_at:
            return decision
        return TrialScheduler.CONTINUE if iteration < decided_at else None

    def _infer_outcome(self, trial: Trial, result: Mapping[str, Any]) -> tuple[Outcome, str | None]:
        """Return a trial's outcome with its cause, if there is more to say."""
        metric, done = self.objective.metric, bool(result.get("done"))
        if metric not in result and not done:
            return Outcome.OUT_OF_BUDGET, None
        if stop := self._stops.get(trial.trial_id):
            return stop.outcome, stop.cause
        recorded, cause = Outcome.of_result(result), result.get(STOP_CAUSE)
        if recorded not in _TRAINABLE_OUTCOMES and not (recorded is Outcome.PRUNED and cause):
            recorded = None  # a guess: no other scheduler has stopped it
        outcome = infer_outcome(
            Outcome.COMPLETED if done else Outcome.OUT_OF_BUDGET,
            recorded=recorded,
            finite=is_finite(result.get(metric)),
        )
        if outcome is recorded:
            return outcome, cause
        return outcome, self._divergence_cause(result) if outcome is Outcome.DIVERGED else None

    def _divergence_cause(self, result: Mapping[str, Any]) -> str:
        iteration = result.get(TRAINING_ITERATION, 0)
        return divergence_cause(result, [self.objective.metric], iteration)
