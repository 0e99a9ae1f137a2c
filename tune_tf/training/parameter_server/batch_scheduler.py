"""Who computes which batch of an epoch, and whose gradient counts."""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

GradientDecision = Literal["apply", "stale", "late"]
"""Whether a gradient counts; it does not if it is too old, or if its batch was done before."""


@dataclass
class StalenessStatistics:
    """What became of the gradients of an epoch.

    Args:
        staleness: Of each gradient that was applied.
        num_stale: Gradients dropped for being older than the bound.
        num_late: Gradients dropped because their batch was done by another worker before.
    """

    staleness: list[int] = field(default_factory=list)
    num_stale: int = 0
    num_late: int = 0

    @property
    def mean_staleness(self) -> float:
        """The mean; 0 where nothing was applied."""
        return sum(self.staleness) / len(self.staleness) if self.staleness else 0.0

    @property
    def max_staleness(self) -> int:
        """The largest; 0 where nothing was applied."""
        return max(self.staleness, default=0)


class BatchScheduler:
    """Deals out the batches of an epoch so that each is applied exactly once.

    A batch whose worker died, or whose gradient came too old, is dealt again. When none is left to
    begin, an idle worker takes over the batch that has been under way for longest: whoever comes
    first counts, so nobody waits for a slow worker at the end of an epoch.

    Args:
        num_batches: Of the epoch; they are dealt in their order.
        max_staleness: Updates that a gradient may be behind.
        version: Updates so far.
    """

    def __init__(self, num_batches: int, max_staleness: int, version: int = 0) -> None:
        self.version = version
        self.statistics = StalenessStatistics()
        self._max_staleness = max_staleness
        self._waiting = deque(range(num_batches))
        self._under_way: dict[int, set[int]] = {}  # by batch, oldest first: who computes it

    @property
    def is_complete(self) -> bool:
        """Whether every batch has been applied."""
        return not self._waiting and not self._under_way

    def deal(self, worker: int) -> int | None:
        """Return the batch that a worker should compute; None if the epoch is complete."""
        if self._waiting:
            batch = self._waiting.popleft()
            self._under_way[batch] = {worker}
            return batch
        if not self._under_way:
            return None
        batch = min(self._under_way, key=lambda each: len(self._under_way[each]))
        self._under_way[batch].add(worker)
        return batch

    def judge(self, worker: int, batch: int, version: int) -> GradientDecision:
        """Take a gradient in.

        Args:
            worker: Whose.
            batch: Of what.
            version: Of the weights that it was computed with.

        Returns:
            What to do with it. What is to be applied counts as applied from now on.
        """
        workers = self._under_way.get(batch)
        if workers is None:
            self.statistics.num_late += 1
            return "late"
        staleness = self.version - version
        if staleness > self._max_staleness:
            self.statistics.num_stale += 1
            self._give_back(batch, worker)
            return "stale"
        del self._under_way[batch]
        self.statistics.staleness.append(staleness)
        self.version += 1
        return "apply"

    def forget(self, worker: int) -> None:
        """Deal again what a worker that is gone was computing."""
        for batch in [b for b, workers in self._under_way.items() if worker in workers]:
            self._give_back(batch, worker)

    def _give_back(self, batch: int, worker: int) -> None:
        workers = self._under_way[batch]
        workers.discard(worker)
        if not workers:
            del self._under_way[batch]
            self._waiting.appendleft(batch)
