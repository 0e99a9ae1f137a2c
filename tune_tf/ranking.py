"""Ranking of trials, and of the epochs of a trial: one rule for results, tracking and progress."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.result_keys import KEPT, TRAINING_ITERATION

KEPT_FOLDER: Final = "kept"
"""Folder in a checkpoint with the state of the best epoch, if that is not the last one."""

KEPT_INDEX: Final = "kept.json"
"""File in each checkpoint of a trial that keeps its best epoch: its metrics and its files."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class KeepBest:
    """Rule that a trial keeps its best epoch, not its last one.

    Args:
        objective: Metric by which epochs are compared; of equal ones, the first is the best.
        constraints: An epoch that violates them is the best only if all do.
    """

    objective: Objective
    constraints: tuple[Constraint, ...] = ()

    def accepts(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether an epoch can be compared."""
        return is_finite(metrics.get(self.objective.metric))

    def prefers(self, metrics: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
        """Return whether an epoch is better than the best one before, by their metrics."""
        feasible, before = (is_feasible(self.constraints, each) for each in (metrics, best))
        if feasible != before:
            return feasible
        return self.objective.better(self.objective.value(metrics), self.objective.value(best))


def kept_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's last result with the metrics of the epoch that it keeps.

    Its number of iterations stays that of the last epoch.
    """
    kept = {
        name.removeprefix(KEPT): value for name, value in result.items() if name.startswith(KEPT)
    }
    kept.pop(TRAINING_ITERATION, None)
    return {name: each for name, each in result.items() if not name.startswith(KEPT)} | kept


def kept_folder(checkpoint: Path) -> Path:
    """Return the folder with the state that a trial keeps: that of its last or its best epoch."""
    kept = checkpoint / KEPT_FOLDER
    return kept if kept.is_dir() else checkpoint


def kept_iteration(result: Mapping[str, Any]) -> int:
    """Return the iteration that a trial keeps, by its last result; 0 without one."""
    return int(result.get(f"{KEPT}{TRAINING_ITERATION}", result.get(TRAINING_ITERATION, 0)))


@dataclass(frozen=True)
class Candidate(Generic[Key]):
    """A trial in a ranking, by the result that it keeps, which is what its checkpoint holds."""

    key: Key
    outcome: Outcome | None
    value: Any  # of the objective
    feasible: bool = True


def best_of(candidates: Iterable[Candidate[Key]], objective: Objective) -> Candidate[Key] | None:
    """Return the best candidate: by kept value, among completed trials if there are any.

    A trial that was stopped early is the best only if none completed, as in Optuna. Ties go to the
    first. Infeasible trials and non-finite values never win.
    """
    return min(_ranked(candidates), key=_rank_key(objective), default=None)


def best_first(candidates: Iterable[Candidate[Key]], objective: Objective) -> list[Candidate[Key]]:
    """Return the candidates sorted best first, without those that :func:`best_of` never takes."""
    return sorted(_ranked(candidates), key=_rank_key(objective))


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
