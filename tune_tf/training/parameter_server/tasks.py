"""Tasks of asynchronous workers: messages, and the scheduling of an epoch's batches."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class SparseGradient(NamedTuple):
    """Gradient of some rows of a variable, as for an embedding."""

    values: Array
    indices: Array


GradientValues = list[Array | SparseGradient | None]
"""Gradient of each trainable variable, or None."""


@dataclass(frozen=True, eq=False)
class Gradient:
    """Effect of one batch on the state of a trial.

    Args:
        values: Gradients, without loss scaling.
        moves: Amount to add to each statistic after its decay (see
            :class:`tune_tf.training.parameter_server.update_loop.VariableRoles`).
        metrics: Amount to add to each metric variable.
        logs: Return value of a user-defined training step; None for the one of Keras.
    """

    values: GradientValues
    moves: list[Array]
    metrics: list[Array]
    logs: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """Batch to compute the gradient of, or a validation to run.

    Args:
        epoch: Number of the epoch on the server, from 1.
        batch: Number of the batch in the epoch; None for validation.
        rows: Row numbers of the batch; None for validation.
        version: Version of the weights: the number of updates.
        weights: Values by index in ``model.variables``: the changed ones, or all for a worker
            without weights.
        loss_scale: Factor of the loss before differentiation; None without loss scaling.
    """

    epoch: int
    batch: int | None
    rows: Array | None
    version: int
    weights: Mapping[int, Array]
    loss_scale: float | None = None


@dataclass(frozen=True, eq=False)
class Idle:
    """Reply to a worker that has no task until the next epoch; ``epoch`` is complete."""

    epoch: int


@dataclass(frozen=True, eq=False)
class TaskResult:
    """Result of the task with the same epoch, batch and version: a gradient, or ``val_`` metrics.

    ``counters`` is the amount that each batch adds to each counter of the model.
    """

    epoch: int
    batch: int | None
    version: int
    gradient: Gradient | None = None
    counters: list[Array] | None = None
    validation: Mapping[str, Any] | None = None


GradientDecision = Literal["apply", "stale", "late"]
"""Decision on a gradient; stale: computed with old weights, late: its batch is already done."""


@dataclass
class StalenessStatistics:
    """Staleness in updates of an epoch's applied gradients, and numbers of dropped ones."""

    staleness: list[int] = field(default_factory=list)
    num_stale: int = 0
    num_late: int = 0

    @property
    def mean_staleness(self) -> float:
        """Mean staleness of the applied gradients; 0 if there are none."""
        return sum(self.staleness) / len(self.staleness) if self.staleness else 0.0

    @property
    def max_staleness(self) -> int:
        """Largest staleness of the applied gradients; 0 if there are none."""
        return max(self.staleness, default=0)


class BatchScheduler:
    """Scheduler that assigns the batches of an epoch so that each is applied exactly once.

    A batch is reassigned if its worker died or its gradient was stale. Once all batches are
    assigned, an idle worker duplicates the oldest unfinished one and the first gradient counts, so
    a slow worker does not delay the end of an epoch.

    The version of the weights is the number of updates so far; a gradient may be ``max_staleness``
    updates behind.
    """

    def __init__(self, num_batches: int, max_staleness: int, version: int = 0) -> None:
        self.version = version
        self.statistics = StalenessStatistics()
        self._max_staleness = max_staleness
        self._waiting = deque(range(num_batches))
        self._under_way: dict[int, set[int]] = {}  # workers by batch, oldest first

    @property
    def is_complete(self) -> bool:
        """Whether every batch has been applied."""
        return not self._waiting and not self._under_way

    def deal(self, worker: int) -> int | None:
        """Assign a batch to a worker; None if the epoch is complete."""
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
        """Decide on a gradient by the version of its weights; count it if it is to be applied."""
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
        """Reassign the batches of a lost worker."""
        for batch in [b for b, workers in self._under_way.items() if worker in workers]:
            self._give_back(batch, worker)

    def _give_back(self, batch: int, worker: int) -> None:
        workers = self._under_way[batch]
        workers.discard(worker)
        if not workers:
            del self._under_way[batch]
            self._waiting.appendleft(batch)
