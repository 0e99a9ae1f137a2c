"""Rows on the devices of a trial, where a step picks them by number."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tune_tf.training.replicas import Replicas

_SAMPLE_ROWS = 2


@dataclass(frozen=True, eq=False)
class Placed:
    """Training and validation rows, resident on every replica's device.

    Args:
        train: Placed ``(x, y[, sample_weight])``; None where only their numbers are needed.
        validation: The same, or None.
        sample: A few training rows as plain tensors, to create variables by.
        num_train: Training rows.
        num_validation: Validation rows.
        spec: Shapes and types, comparable.
        per_example: What a trial computes of each row, a
            :class:`~tune_tf.training.per_example.PerExample`; None for nothing. ``sample`` has been
            through it.
    """

    train: Any
    validation: Any
    sample: tuple[Any, ...]
    num_train: int
    num_validation: int
    spec: Any
    per_example: Any = None


def place(rows: Any, replicas: Replicas | None) -> Placed:
    """Copy rows (see ``tune_tf.data.Rows``) to the device of every replica; None: nowhere."""
    count = min(_SAMPLE_ROWS, rows.num_train)
    return Placed(
        train=None if replicas is None else replicas.place(rows.train),
        validation=(
            None if replicas is None or rows.validation is None else replicas.place(rows.validation)
        ),
        sample=tf.nest.map_structure(lambda a: tf.constant(a[:count]), rows.train),
        num_train=rows.num_train,
        num_validation=rows.num_validation,
        spec=rows.spec,
    )
