"""What tune_tf's schedulers add to Ray's: they say why a trial ended.

Ray Tune asks a scheduler what to do with each result, and forgets the reason: a trial that was
stopped early and one that ran to its limit look the same to searchers and callbacks. When a trial
is over, Tune calls the scheduler first, then the searcher, then the callbacks, and hands all of
them the trial's last result; so the reason is written there.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.config.scheduler_settings import LimitedSettings
from tune_tf.errors import InvalidSettingsError, UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.result_keys import TRAINING_ITERATION, own_metrics
from tune_tf.schedulers.state import ResumeMixin

_TRAINABLES_OWN = (Outcome.COMPLETED, Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR)


@dataclass(frozen=True)
class _Stop:
    """A stop that this scheduler decided on."""

    outcome: Outcome
    iteration: int
    cause: str | None = None


class OutcomeMixin(ResumeMixin, FIFOScheduler):
    """Mixin for a Ray scheduler: bounds trials, keeps NaN and Inf out, and says why a trial ended.

    With finite metrics every decision is the Ray scheduler's own.

    Attributes:
        num_to_keep: What ``tune.run(checkpoint_config=CheckpointConfig(num_to_keep=...))`` has to
            be for this scheduler; None for all checkpoints of a trial.
        fresh_actors: Whether this scheduler needs ``tune.run(reuse_actors=False)``.
    """

    settings: LimitedSettings
    num_to_keep: int | None = 2
    fresh_actors = False

    def _begin(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Take up the settings; the last line of a subclass's ``__init__``."""
        super()._begin(objective, settings)
        self._stops: dict[str, _Stop] = {}
        self._depth = 0
        self._leaving: set[str] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Return the iterations at which trials are compared, ascending; empty if at none."""
        return ()

    @property
    def metric(self) -> str:
        """The metric that Tune checks each result for."""
        return self.objective.metric

    def set_search_properties(self, metric: str | None, mode: str | None, **_spec: Any) -> bool:
        """Accept what ``tune.run(metric=, mode=)`` says where it agrees with the objective.

        Raises:
            InvalidSettingsError: It names another metric or mode.
        """
        given = Objective(metric or self.objective.metric, mode or self.objective.mode)  # type: ignore[arg-type]
        if given != self.objective:
            raise InvalidSettingsError(
                [
                    (
                        f"tune.run was given metric={metric!r}, mode={mode!r}, but the scheduler "
                        f"was made for metric={self.objective.metric!r}, "
                        f"mode={self.objective.mode!r}; leave them out of tune.run"
                    )
                ]
            )
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Make ``max_t`` the trial's own limit, so that Tune ends it there as complete."""
        trial.stopping_criterion.setdefault(TRAINING_ITERATION, self.settings.max_t)
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what Ray's scheduler decides; a trial whose metric is not finite is stopped.

        Raises:
            UnknownMetricError: The metric is not in the result; names those that are.
        """
        self._take_up(tune_controller)
        iteration = int(result.get(TRAINING_ITERATION, 0))
        if decided := self._decided_before(trial, iteration):
            return decided
        if self.objective.metric not in result:
            raise UnknownMetricError(self.objective.missing(own_metrics(result)))
        if not is_finite(result[self.objective.metric]):
            cause = self._not_finite(result)
            self._stops[trial.trial_id] = _Stop(Outcome.DIVERGED, iteration, cause)
            return TrialScheduler.STOP
        with self._deciding():
            decision = super().on_trial_result(tune_controller, trial, result)
        if decision == TrialScheduler.STOP:
            self._stops[trial.trial_id] = self._stop_at(trial, iteration)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Write the reason of the end into the trial's last result, then let Ray's record it."""
        self._take_up(tune_controller)
        self._note_stop(trial)
        self._write(trial, *self._ending(trial, result))
        with self._deciding(trial):
            if is_finite(result.get(self.objective.metric)):
                super().on_trial_complete(tune_controller, trial, result)
            else:
                super().on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Write the reason of the end of a trial that waited; its last result is there still."""
        self._take_up(tune_controller)
        # Ray's Hyperband calls it, too, for a trial that completes or fails.
        if trial.trial_id not in self._leaving:
            self._note_stop(trial)
            stop = self._stops.get(trial.trial_id, _Stop(Outcome.OUT_OF_BUDGET, 0))
            self._write(trial, stop.outcome, stop.cause)
            _put_into_snapshot(tune_controller, trial)
        with self._deciding(trial):
            super().on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Let Ray's scheduler know that a trial failed, which may end the waiting of others."""
        self._take_up(tune_controller)
        with self._deciding(trial):
            super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial that Ray's scheduler wants to run next."""
        self._take_up(tune_controller)
        with self._deciding():
            return super().choose_trial_to_run(tune_controller, **options)

    def _limit(self, trial: Trial) -> int:
        """Return the iteration at which a trial has run as far as it is meant to."""
        return self.settings.max_t

    @contextlib.contextmanager
    def _deciding(self, leaving: Trial | None = None) -> Iterator[None]:
        """Mark that Ray's scheduler decides: trials that Tune completes meanwhile, it stops.

        Args:
            leaving: The trial whose end it is told of.
        """
        ended = {leaving.trial_id} - self._leaving if leaving else set()
        self._leaving |= ended
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._leaving -= ended

    def _note_stop(self, trial: Trial) -> None:
        """Note that Ray's scheduler stops a trial, if it is at it."""
        if self._depth and trial.trial_id not in self._stops:
            iteration = int(trial.last_result.get(TRAINING_ITERATION, 0))
            self._stops[trial.trial_id] = self._stop_at(trial, iteration)

    def _stop_at(self, trial: Trial, iteration: int) -> _Stop:
        at_limit = iteration >= self._limit(trial)
        return _Stop(Outcome.COMPLETED if at_limit else Outcome.PRUNED, iteration)

    def _write(self, trial: Trial, outcome: Outcome, cause: str | None) -> None:
        trial.last_result[STOP_REASON] = outcome.value
        trial.last_result.pop(STOP_CAUSE, None)
        if cause:
            trial.last_result[STOP_CAUSE] = cause
        trial.run_metadata.invalidate_cache()

    def _decided_before(self, trial: Trial, iteration: int) -> str | None:
        """Return what to do with a trial that runs again, after a resume, to where it was stopped.

        Ray's scheduler has done with it: it would let it pass this time, or fail.
        """
        stop = self._stops.get(trial.trial_id)
        if stop is None:
            return None
        if stop.outcome is Outcome.DIVERGED:
            del self._stops[trial.trial_id]
            return None
        return TrialScheduler.STOP if iteration >= stop.iteration else TrialScheduler.CONTINUE

    def _ending(self, trial: Trial, result: Mapping[str, Any]) -> tuple[Outcome, str | None]:
        """Return how a trial ended, and why where there is more to say."""
        done = bool(result.get("done"))
        if self.objective.metric not in result and not done:
            return Outcome.OUT_OF_BUDGET, None
        if stop := self._stops.get(trial.trial_id):
            return stop.outcome, stop.cause
        stamped = Outcome.of_result(result)
        finite = is_finite(result.get(self.objective.metric))
        cause = result.get(STOP_CAUSE)
        if stamped in _TRAINABLES_OWN and (finite or stamped is not Outcome.COMPLETED):
            return stamped, cause
        if stamped is Outcome.PRUNED and cause:  # whoever stopped it has said why
            return stamped, cause
        if not finite:
            return Outcome.DIVERGED, self._not_finite(result)
        return (Outcome.COMPLETED if done else Outcome.OUT_OF_BUDGET), None

    def _not_finite(self, result: Mapping[str, Any]) -> str:
        name, iteration = self.objective.metric, result.get(TRAINING_ITERATION, 0)
        if name not in result:
            return f"{name} is not reported at iteration {iteration}"
        return f"{name} is {result[name]} at iteration {iteration}"


def _put_into_snapshot(controller: Any, trial: Trial) -> None:
    """Have Tune write a trial's end, which it forgets of one that waits without an actor.

    A resume would run it again. There is no public way; without this one the end is lost only if
    the driver is.
    """
    mark = getattr(controller, "_mark_trial_to_checkpoint", None)
    if mark is not None:
        mark(trial)
