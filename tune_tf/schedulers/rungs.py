"""Rungs: iterations at which trials wait, and how far each trial came."""

import math


def rung_iterations(grace_period: int, reduction_factor: float, epochs: int) -> tuple[int, ...]:
    """Return the positions of the rungs, ascending.

    At ``grace_period * reduction_factor ** k``, rounded up, below ``epochs``; and at ``epochs``.
    """
    iterations = {epochs}
    exact: float = grace_period
    while (iteration := math.ceil(round(exact, 9))) < epochs:
        iterations.add(iteration)
        exact *= reduction_factor
    return tuple(sorted(iterations))


class Rungs:
    """How far each trial came, and whether it waits there.

    Args:
        iterations: Positions of the rungs, ascending; trials end at the last one.
    """

    def __init__(self, iterations: tuple[int, ...]) -> None:
        self.iterations = iterations
        self._heights: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def report(self, trial_id: str, iteration: int) -> None:
        """Record how far a trial came."""
        self._heights[trial_id] = max(self._rung_at(iteration), self.height(trial_id))

    def height(self, trial_id: str) -> int:
        """Return the number of a trial's highest rung, from 1; 0 for none."""
        return self._heights.get(trial_id, 0)

    def holds(self, trial_id: str) -> bool:
        """Return whether a trial is to wait at its highest rung."""
        return self.height(trial_id) > self._left.get(trial_id, 0)

    def holds_at(self, trial_id: str, iteration: int) -> bool:
        """Return whether a trial that reported is to wait at this iteration."""
        return self._rung_at(iteration) > self._left.get(trial_id, 0)

    def leave(self, trial_id: str) -> None:
        """Let a trial go on from its highest rung."""
        self._left[trial_id] = self.height(trial_id)

    def _rung_at(self, iteration: int) -> int:
        """Return the number of the highest rung at or below an iteration; 0 below the first."""
        return sum(each <= iteration for each in self.iterations)

    def __str__(self) -> str:
        """Return how many trials stand at each rung, highest first."""
        heights = list(self._heights.values())
        counts = (heights.count(number) for number in range(1, len(self.iterations) + 1))
        pairs = zip(self.iterations, counts, strict=True)
        return ", ".join(f"{iteration}: {count}" for iteration, count in reversed([*pairs]))
