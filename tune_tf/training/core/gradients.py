"""Arithmetic on gradients that are dense, sparse or None."""

from typing import Any

import tensorflow as tf


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


def scale_gradient(gradient: Any, factor: float) -> Any:
    """Multiply a gradient by a factor."""
    if factor == 1:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
