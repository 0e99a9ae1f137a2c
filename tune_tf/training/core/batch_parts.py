"""Rows, losses and gradients of a batch's parts, which add up to those of the batch."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError


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


def relative_share(rows: Any, num_rows: Any, num_replicas: int) -> Any:
    """Return the share of ``rows`` in a batch divided by an even share; 1 for an even batch."""
    if isinstance(num_rows, int):
        return rows * num_replicas / num_rows
    return tf.cast(rows * num_replicas, tf.float32) / tf.cast(num_rows, tf.float32)


def can_share_batch(num_rows: Any, num_replicas: int) -> Any:
    """Return whether replicas can share a batch in a custom step, which may divide by its rows.

    If a replica would have no rows, every replica takes the whole batch.
    """
    return num_rows >= num_replicas


def is_even(share: Any) -> bool:
    """Return whether a share is known to be 1 while the graph is made."""
    return isinstance(share, float | int) and share == 1


def weigh_loss(loss: Any, share: Any, model: keras.Model, num_replicas: int) -> Any:
    """Weigh the loss of some rows so that the losses of all parts sum to the loss of the batch.

    Means are weighted by rows. Sums are not, except for the weight penalties that each contains.
    The mean over no rows is not a number, and counts as 0.
    """
    if is_even(share):
        return loss
    if tf.is_tensor(share):
        share = tf.cast(share, loss.dtype)
    if loss_is_mean(model):
        return tf.where(share > 0, share * loss, 0) if tf.is_tensor(share) else share * loss
    penalties = [v.regularizer(v) for v in model.trainable_variables if v.regularizer is not None]
    return loss + (share - 1) * sum(penalties) / num_replicas


@contextlib.contextmanager
def weigh_output_losses(model: keras.Model, share: Any, num_replicas: int) -> Iterator[None]:
    """Let the metrics of single outputs' losses weigh the parts of a batch by their share.

    Keras weighs them by rows if their number is static, and otherwise each part by 1.
    """

    def weighed(update: Callable[..., Any], value: Any, sample_weight: Any = None) -> None:
        if sample_weight is None:
            value = tf.where(share > 0, value, 0)  # the mean over no rows is not a number
            sample_weight = share / num_replicas
        update(value, sample_weight=sample_weight)

    trackers = [
        metric
        for metric in model.metrics
        if metric.name.endswith("_loss") and isinstance(metric, keras.metrics.Mean)
    ]
    for tracker in trackers:
        tracker.update_state = partial(weighed, tracker.update_state)
    try:
        yield
    finally:
        for tracker in trackers:
            del tracker.update_state


def track_loss(model: keras.Model, loss: Any, num_rows: Any, num_replicas: int) -> None:
    """Add a replica's part of a batch's loss to the model's metric of the total loss."""
    tracker = next(metric for metric in model.metrics if metric.name == "loss")
    weight = tf.cast(num_rows, tf.float32) if tf.is_tensor(num_rows) else num_rows
    tracker.update_state(loss * num_replicas, sample_weight=weight / num_replicas)


def loss_is_mean(model: keras.Model) -> bool:
    """Return whether the compiled losses are means over rows; False if they are sums.

    Raises:
        WorkloadError: The losses are neither, so row weights cannot make replicas exact.
    """
    losses = [loss for loss in tf.nest.flatten(model.loss) if loss is not None]
    kinds = {getattr(loss, "reduction", "sum_over_batch_size") for loss in losses}
    if kinds <= {"sum_over_batch_size", "mean"}:
        return True
    if kinds == {"sum"}:
        return False
    raise WorkloadError(
        f"losses with reduction {', '.join(sorted(map(str, kinds)))} cannot be split exactly over "
        "replicas: use reduction='sum_over_batch_size' for all, or one replica"
    )


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
