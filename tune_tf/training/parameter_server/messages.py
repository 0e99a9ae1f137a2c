"""What a parameter server asks of a worker, and what the worker brings back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class SparseGradient(NamedTuple):
    """The gradient of a few rows of a variable, as an embedding has it."""

    values: Array
    indices: Array


GradientValues = list[Array | SparseGradient | None]
"""Gradients by trainable variable; None where a variable has none."""


@dataclass(frozen=True, eq=False)
class Gradient:
    """What one batch does to a trial.

    Args:
        values: The gradients, not scaled.
        moves: By non-trainable variable, what to add to it once it has decayed (see
            :class:`tune_tf.training.parameter_server.variable_roles.VariableRoles`).
        metrics: By metric variable, what the batch adds to it.
        logs: What a training step of the user's own returned; None for Keras'.
    """

    values: GradientValues
    moves: list[Array]
    metrics: list[Array]
    logs: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """A batch to compute the gradient of, or the validation.

    Args:
        epoch: Number of the epoch in the server's life, from 1.
        batch: Number of the batch in the epoch; None for the validation.
        rows: Numbers of its rows; None for the validation.
        version: Of the weights: the updates that they have seen.
        weights: Values of variables by their index in ``model.variables``: all of them for a
            worker that has none, else those that have changed since.
        loss_scale: By which the loss is multiplied before the gradients; None for not at all.
    """

    epoch: int
    batch: int | None
    rows: Array | None
    version: int
    weights: Mapping[int, Array]
    loss_scale: float | None = None


@dataclass(frozen=True, eq=False)
class Idle:
    """Nothing to do until the next epoch.

    Args:
        epoch: Number of the last epoch, which is complete.
    """

    epoch: int


@dataclass(frozen=True, eq=False)
class TaskResult:
    """What came of a task.

    Args:
        epoch: Of the task.
        batch: Of the task.
        version: Of the task.
        gradient: Of a batch.
        counters: What each batch adds to each counter of the model.
        validation: Metrics by name, behind ``val_``.
    """

    epoch: int
    batch: int | None
    version: int
    gradient: Gradient | None = None
    counters: list[Array] | None = None
    validation: Mapping[str, Any] | None = None
