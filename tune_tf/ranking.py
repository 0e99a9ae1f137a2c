"""Ranking of trials: one rule for results, tracking and progress."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Candidate(Generic[Key]):
    """A trial in a ranking, by its last result, which is what its checkpoint holds."""

    key: Key
    outcome: Outcome | None
    value: Any  # of the objective
    feasible: bool = True


def best_of(candidates: Iterable[Candidate[Key]], objective: Objective) -> Candidate[Key] | None:
    """Return the best candidate: by last value, among completed trials if there are any.

    A trial that was stopped early is the best only if none completed, as in Optuna. Ties go to the
    first. Infeasible trials and non-finite values never win.
    """
    return min(_ranked(candidates), key=_rank_key(objective), default=None)


def best_first(candidates: Iterable[Candidate[Key]], objective: Objective) -> list[Candidate[Key]]:
    """Return the candidates sorted best first, without those that :func:`best_of` never takes."""
    return sorted(_ranked(candidates), key=_rank_key(objective))


def best_so_far(values: Iterable[float], objective: Objective) -> list[float]:
    """Return the running best of the finite values."""
    best: list[float] = []
    for value in values:
        if is_finite(value):
            better = not best or objective.better(value, best[-1])
            best.append(value if better else best[-1])
    return best


def _ranked(candidates: Iterable[Candidate[Key]]) -> list[Candidate[Key]]:
    return [each for each in candidates if each.feasible and is_finite(each.value)]


def _rank_key(objective: Objective) -> Callable[[Candidate[Any]], tuple[bool, float]]:
    sign = 1.0 if objective.mode == "min" else -1.0
    return lambda each: (each.outcome is not Outcome.COMPLETED, sign * float(each.value))


def pareto_front(
    points: Mapping[Key, Sequence[float]], objectives: Sequence[Objective]
) -> tuple[Key, ...]:
    """Return the keys of the points that no other point dominates, in the order given.

    A point dominates another if it is at least as good in every objective and better in one
    (https://en.wikipedia.org/wiki/Pareto_front). Equal points do not dominate each other. Points
    with a non-finite value are never in the front.
    """
    signs = [1.0 if objective.mode == "min" else -1.0 for objective in objectives]
    costs = {
        key: tuple(sign * value for sign, value in zip(signs, values, strict=True))
        for key, values in points.items()
        if all(is_finite(value) for value in values)
    }
    front: list[tuple[float, ...]] = []
    for cost in sorted(set(costs.values())):  # what dominates a point sorts before it
        if not any(all(map(float.__le__, better, cost)) for better in front):
            front.append(cost)
    front_costs = set(front)
    return tuple(key for key, cost in costs.items() if cost in front_costs)
