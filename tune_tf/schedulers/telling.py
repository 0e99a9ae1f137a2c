"""What tune_tf's schedulers add to Ray's: they say why a trial ended.

Ray Tune asks a scheduler what to do with each result, and forgets the reason: a trial that was
stopped early and one that ran to its limit look the same to searchers and callbacks. When a trial
is over, Tune calls the scheduler first, then the searcher, then the callbacks, and hands all of
them the trial's last result; so the reason is written there.
"""

import os
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DEBUG_METRICS
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.errors import InvalidSettingsError, SweepConflictError, UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.schedulers.limits import Limits

TIME: Final = "training_iteration"
"""The result's key that limits count."""

_TRAINABLES_OWN = (Outcome.COMPLETED, Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR)


_FILLED_IN = frozenset({*AUTO_RESULT_KEYS, *DEBUG_METRICS, "timestamp", "done"})


@dataclass(frozen=True)
class _Stop:
    """A stop that this scheduler decided on."""

    outcome: Outcome
    iteration: int
    cause: str | None = None


class Telling(FIFOScheduler):
    """Mixin for a Ray scheduler: bounds trials, keeps NaN and Inf out, and says why a trial ended.

    With finite metrics every decision is the Ray scheduler's own. Tune does not save schedulers:
    whoever resumes a sweep calls :meth:`save` now and then, and :meth:`restore` before
    ``tune.run(resume=...)``.
    """

    objective: Objective
    limits: Limits

    def _begin(self, objective: Objective, limits: Limits) -> None:
        """Take up the settings; the last line of a subclass's ``__init__``."""
        self.objective = objective
        self.limits = limits
        self._stops: dict[str, _Stop] = {}

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
        trial.stopping_criterion.setdefault(TIME, self.limits.max_t)
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what Ray's scheduler decides; a trial whose metric is not finite is stopped.

        Raises:
            UnknownMetricError: The metric is not in the result; names those that are.
        """
        iteration = int(result.get(TIME, 0))
        if self._was_pruned_here(trial, iteration):
            return TrialScheduler.STOP
        if self.objective.metric not in result:
            own = {
                name: value
                for name, value in result.items()
                if name not in _FILLED_IN and not name.startswith("config/")
            }
            raise UnknownMetricError(self.objective.missing(own))
        if not is_finite(result[self.objective.metric]):
            cause = self._not_finite(result)
            self._stops[trial.trial_id] = _Stop(Outcome.DIVERGED, iteration, cause)
            return TrialScheduler.STOP
        decision = super().on_trial_result(tune_controller, trial, result)
        if decision == TrialScheduler.STOP:
            limit = iteration >= self.limits.max_t
            outcome = Outcome.COMPLETED if limit else Outcome.PRUNED
            self._stops[trial.trial_id] = _Stop(outcome, iteration)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Write the reason of the end into the trial's last result, then let Ray's record it."""
        outcome, cause = self._ending(trial, result)
        trial.last_result[STOP_REASON] = outcome.value
        trial.last_result.pop(STOP_CAUSE, None)
        if cause:
            trial.last_result[STOP_CAUSE] = cause
        trial.run_metadata.invalidate_cache()
        if is_finite(result.get(self.objective.metric)):
            super().on_trial_complete(tune_controller, trial, result)
        else:
            super().on_trial_remove(tune_controller, trial)

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state to a file, in one step: a reader sees the old file or the new one."""
        path = Path(checkpoint_path)
        saved = {"scheduler": type(self).__name__, "state": self.__dict__}
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(saved, file)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Take up a state that :meth:`save` wrote; trials are added again by Tune.

        Raises:
            SweepConflictError: It was written by a scheduler of another kind or other settings,
                whose rungs do not fit.
        """
        saved = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        theirs = saved["scheduler"], saved["state"]["objective"], saved["state"]["limits"]
        ours = type(self).__name__, self.objective, self.limits
        if theirs != ours:
            raise SweepConflictError(
                f"{checkpoint_path} was saved by {_described(*theirs)}; it cannot go on as "
                f"{_described(*ours)}: resume with the settings it was started with"
            )
        self.__dict__.update(saved["state"])

    def _was_pruned_here(self, trial: Trial, iteration: int) -> bool:
        """Return whether a trial that runs again after a resume has come to where it was stopped.

        The rung already holds its value, so Ray's scheduler would let it pass this time.
        """
        stop = self._stops.get(trial.trial_id)
        if stop is not None and stop.outcome is Outcome.DIVERGED:
            del self._stops[trial.trial_id]
        return stop is not None and stop.outcome is Outcome.PRUNED and iteration >= stop.iteration

    def _ending(self, trial: Trial, result: Mapping[str, Any]) -> tuple[Outcome, str | None]:
        """Return how a trial ended, and why where there is more to say."""
        done = bool(result.get("done"))
        if self.objective.metric not in result and not done:
            return Outcome.OUT_OF_BUDGET, None
        if stop := self._stops.get(trial.trial_id):
            return stop.outcome, stop.cause
        stamped = Outcome.of_result(result)
        finite = is_finite(result.get(self.objective.metric))
        if stamped in _TRAINABLES_OWN and (finite or stamped is not Outcome.COMPLETED):
            return stamped, result.get(STOP_CAUSE)
        if not finite:
            return Outcome.DIVERGED, self._not_finite(result)
        return (Outcome.COMPLETED if done else Outcome.OUT_OF_BUDGET), None

    def _not_finite(self, result: Mapping[str, Any]) -> str:
        name, iteration = self.objective.metric, result.get(TIME, 0)
        if name not in result:
            return f"{name} is not reported at iteration {iteration}"
        return f"{name} is {result[name]} at iteration {iteration}"


def _described(kind: str, objective: Objective, limits: Limits) -> str:
    return (
        f"{kind}({objective.mode} {objective.metric}, max_t={limits.max_t}, "
        f"grace_period={limits.grace_period}, reduction_factor={limits.reduction_factor})"
    )
