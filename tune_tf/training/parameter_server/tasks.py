"""Tasks of asynchronous workers: messages, and the scheduling of an epoch's batches."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        batch: Number of the batch in the epoch.
        version: Version of the weights with which it was computed.
        values: Gradients of the trainable variables.
        moves: Amount to add to each other variable after its decay (see
            :class:`tune_tf.training.parameter_server.update_loop.VariableRoles`).
        metrics: Amount to add to each metric variable.
        logs: Return value of a user-defined training step; None for the one of Keras.
    """

    batch: int
    version: int
    values: GradientValues
    moves: list[Array]
    metrics: list[Array]
    logs: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """Batch to compute the gradient of.

    Args:
        batch: Number of the batch in the epoch.
        rows: Row numbers of the batch.
        version: Version of the weights: the number of updates in the epoch.
        weights: Values of the variables that change, by index in ``model.variables``.
    """

    batch: int
    rows: Array
    version: int
    weights: Mapping[int, Array]


class BatchScheduler:
    """Scheduler that assigns the batches of an epoch so that each is applied exactly once.

    The version of the weights is the number of updates in the epoch; a gradient may be
    ``max_staleness`` updates behind. The batch of an older one is assigned again.
    """

    def __init__(self, num_batches: int, max_staleness: int) -> None:
        self.version = 0
        #: Updates by which each applied gradient was behind.
        self.staleness: list[int] = []
        #: Gradients that were too old.
        self.num_stale = 0
        self._max_staleness = max_staleness
        self._waiting = deque(range(num_batches))

    def deal(self) -> int | None:
        """Assign a batch; None if none is left."""
        return self._waiting.popleft() if self._waiting else None

    def accepts(self, batch: int, version: int) -> bool:
        """Return whether to apply the gradient of an assigned batch, by its version; count it."""
        staleness = self.version - version
        if staleness > self._max_staleness:
            self.num_stale += 1
            self._waiting.appendleft(batch)
            return False
        self.staleness.append(staleness)
        self.version += 1
        return True
