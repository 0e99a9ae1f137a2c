"""Which trial of a sweep is the best: one rule for results, tracking and progress."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Candidate(Generic[Key]):
    """A trial as far as the ranking looks at it.

    Args:
        key: Whatever the caller knows the trial by.
        outcome: How it ended; None while it has not.
        value: The objective's metric in its last result, which is what its checkpoint holds.
    """

    key: Key
    outcome: Outcome | None
    value: Any


def best_of(candidates: Iterable[Candidate[Key]], objective: Objective) -> Candidate[Key] | None:
    """Return the best candidate: by last value, among completed trials if there are any.

    A trial that was stopped early is the best only where none was completed, as in Optuna. Of equal
    ones the first is taken. Values that are not finite never win.
    """
    finite = [candidate for candidate in candidates if is_finite(candidate.value)]
    completed = [candidate for candidate in finite if candidate.outcome is Outcome.COMPLETED]
    pool = completed or finite
    if not pool:
        return None
    choose = max if objective.mode == "max" else min
    return choose(pool, key=lambda candidate: float(candidate.value))
