"""Rows, losses and gradients of a batch's parts, which add up to those of the batch."""

from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError


def split_rows(num_rows: int, replica: int, num_replicas: int) -> tuple[int, int]:
    """Return a replica's rows ``[first, last)`` of a global batch."""
    return num_rows * replica // num_replicas, num_rows * (replica + 1) // num_replicas


def unpack_batch(batch: Any) -> tuple[Any, Any, Any]:
    """Return ``(x, y, sample_weight)`` of a batch, with None for missing parts."""
    x, y, sample_weight = (*batch, None, None)[:3]
    return x, y, sample_weight


def relative_share(rows: int, num_rows: int, num_replicas: int) -> float:
    """Return the share of ``rows`` in a batch divided by an even share; 1 for an even batch."""
    return rows * num_replicas / num_rows


def can_share_batch(num_rows: int, num_replicas: int) -> bool:
    """Return whether replicas can share a batch in a custom step, which may divide by its rows.

    If a replica would have no rows, every replica takes the whole batch.
    """
    return num_rows >= num_replicas


def weigh_loss(loss: Any, share: float, model: keras.Model, num_replicas: int) -> Any:
    """Weigh the loss of some rows so that the losses of all parts sum to the loss of the batch.

    Means are weighted by rows. Sums are not, except for the weight penalties that each contains.
    """
    if share == 1.0:
        return loss
    if loss_is_mean(model):
        return share * loss
    penalties = [v.regularizer(v) for v in model.trainable_variables if v.regularizer is not None]
    return loss + (share - 1) * sum(penalties) / num_replicas


def track_loss(model: keras.Model, loss: Any, num_rows: int, num_replicas: int) -> None:
    """Add a replica's part of a batch's loss to the model's metric of the total loss."""
    tracker = next(metric for metric in model.metrics if metric.name == "loss")
    tracker.update_state(loss * num_replicas, sample_weight=num_rows / num_replicas)


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
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
