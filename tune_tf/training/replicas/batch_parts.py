"""Rows of a batch's parts, their shares, and sums of their gradients."""

from typing import Any

import keras
import tensorflow as tf


def split_rows(num_rows: int, replica: int, num_replicas: int) -> tuple[int, int]:
    """Return a replica's rows ``[first, last)`` of a global batch."""
    return num_rows * replica // num_replicas, num_rows * (replica + 1) // num_replicas


def replica_rows(num_rows: Any, replica: int, num_replicas: int, *, whole: bool) -> Any:
    """Return a replica's rows ``[first, last)`` of a batch; ``whole``: see :func:`can_share_batch`.

    ``num_rows`` may be a tensor.
    """
    first, last = split_rows(num_rows, replica, num_replicas)
    if not whole or num_replicas == 1:
        return first, last
    shared = can_share_batch(num_rows, num_replicas)
    if isinstance(shared, bool):
        return (first, last) if shared else (0, num_rows)
    return tf.where(shared, first, 0), tf.where(shared, last, num_rows)


def unpack_batch(batch: Any) -> tuple[Any, Any, Any]:
    """Return ``(x, y, sample_weight)`` of a batch, with None for missing parts."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    return x, y, sample_weight


def fraction_of(rows: Any, num_rows: Any) -> Any:
    """Return the fraction that ``rows`` are of a batch."""
    if isinstance(num_rows, int):
        return rows / num_rows
    return tf.cast(rows, tf.float32) / tf.cast(num_rows, tf.float32)


def can_share_batch(num_rows: Any, num_replicas: int) -> Any:
    """Return whether replicas can share a batch in a custom step, which may divide by its rows.

    If a replica would have no rows, every replica takes the whole batch.
    """
    return num_rows >= num_replicas


def is_even(share: Any) -> bool:
    """Return whether a share is known to be 1 while the graph is made."""
    return isinstance(share, float | int) and share == 1


def add_gradients(first: Any, second: Any) -> Any:
    """Return the sum of two gradients, which is sparse if both are."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tf.IndexedSlices) and isinstance(second, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([first.values, second.values], 0),
            tf.concat([first.indices, second.indices], 0),
            first.dense_shape,
        )
    return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)


def scale_gradient(gradient: Any, factor: Any) -> Any:
    """Multiply a gradient by a factor."""
    if tf.is_tensor(factor):
        factor = tf.cast(factor, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
