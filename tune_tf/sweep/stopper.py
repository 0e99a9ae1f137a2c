"""What ends a sweep, or one trial of it, from outside the trial and its scheduler."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from ray.tune import Stopper
from ray.tune.utils import flatten_dict

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite


@dataclass(frozen=True)
class Target:
    """A value of a metric that is good enough.

    Args:
        objective: The metric, and which way is better.
        value: The value.
        constraints: What a trial is to keep besides.
    """

    objective: Objective
    value: float
    constraints: tuple[Constraint, ...] = ()

    def reached_by(self, result: Mapping[str, Any]) -> bool:
        """Return whether a flat result is as good as the target, or better."""
        told = result.get(self.objective.metric)
        if not is_finite(told) or not is_feasible(self.constraints, result):
            return False
        return not self.objective.better(self.value, float(told))  # type: ignore[arg-type]


class SweepStopper(Stopper):
    """Stops trials that are to end, and all of them once there is a reason; a Tune stopper.

    Tune pickles it with its state, and a resumed sweep gets what was pickled in the place of what
    is handed over. So it is pickled by the name of its sweep, and what is unpickled is the one that
    was made last for that sweep.

    Args:
        sweep_id: The sweep.
        target: Ends the sweep as soon as a trial reaches it; None for none.
    """

    def __init__(self, sweep_id: str, target: Target | None = None) -> None:
        self.target = target
        self.reason: str | None = None
        """Why the sweep is to end, as a sentence; None while it goes on."""
        self._sweep_id = sweep_id
        self._trials: dict[str, tuple[Outcome, str]] = {}
        self._closing: set[str] = set()
        self._lookouts: list[Callable[[], None]] = []
        _LATEST[sweep_id] = self

    def __reduce__(self) -> tuple[Callable[[str], "SweepStopper"], tuple[str]]:
        """Pickle by name."""
        return _latest, (self._sweep_id,)

    def end(self, reason: str) -> None:
        """End the sweep; the first reason stays."""
        self.reason = self.reason or reason

    def end_trial(self, trial_id: str, outcome: Outcome, cause: str) -> None:
        """End a trial with its next result.

        Args:
            trial_id: Ray Tune's id.
            outcome: How it is to end.
            cause: Why.
        """
        self._trials[trial_id] = outcome, cause

    def end_of(self, trial_id: str) -> tuple[Outcome, str] | None:
        """Return how a trial is to end and why; None if it is not to."""
        return self._trials.get(trial_id)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether a trial is to end with this result."""
        if self.target is not None and self.target.reached_by(flat := flatten_dict(result)):
            metric = self.target.objective.metric
            told = f"{metric} {flat[metric]:.6g} reached its target of {self.target.value:.6g}"
            self.end_trial(trial_id, Outcome.COMPLETED, told)
            self.end(f"a trial's {told}")
        return trial_id in self._trials

    def ask(self, lookout: Callable[[], None]) -> None:
        """Have something look for a reason whenever Tune asks, also while it only waits."""
        self._lookouts.append(lookout)

    def closing(self, trial_id: str) -> None:
        """Note that a trial has told its last result; its checkpoint may still be written."""
        self._closing.add(trial_id)

    def closed(self, trial_id: str) -> None:
        """Note that Tune is through with a trial, or has started it again."""
        self._closing.discard(trial_id)

    def stop_all(self) -> bool:
        """Return whether all trials are to end; not before those have that end by themselves."""
        for look in self._lookouts:
            look()
        return self.reason is not None and not self._closing


_LATEST: "WeakValueDictionary[str, SweepStopper]" = WeakValueDictionary()


def _latest(sweep_id: str) -> SweepStopper:
    return _LATEST.get(sweep_id) or SweepStopper(sweep_id)
