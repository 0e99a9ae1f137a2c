"""Messages between a parameter server and its workers."""

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
        values: Gradients, without loss scaling.
        moves: Amount to add to each statistic after its decay (see
            :class:`tune_tf.training.parameter_server.variable_roles.VariableRoles`).
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
    """Result of the task with the same epoch, batch and version.

    Args:
        gradient: Gradient of the batch; None for validation.
        counters: Amount that each batch adds to each counter of the model.
        validation: Metrics by name, with prefix ``val_``; None for a batch.
    """

    epoch: int
    batch: int | None
    version: int
    gradient: Gradient | None = None
    counters: list[Array] | None = None
    validation: Mapping[str, Any] | None = None
