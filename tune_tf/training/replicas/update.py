"""Weight updates that do not depend on the number of replicas.

Keras' optimizer clips in every replica before it sums over the replicas. Here gradients are summed
first.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.scalars import (
    CLIP_THRESHOLDS,
    has_several_optimizers,
    inner_optimizer,
    optimizers_of,
)

Apply = Callable[..., Any]


def prepare_optimizer(model: keras.Model, replicas: Replicas) -> None:
    """Make ``optimizer.apply`` of a built optimizer exact for several replicas.

    If the optimizer does more than sum, each of R replicas gets the gradient G of all rows as G/R,
    because Keras sums once more. Clip thresholds c become c/R, since clip(G/R, c/R) = clip(G, c)/R
    for clipping by value, norm and global norm. Nothing changes for a single replica.

    Raises:
        WorkloadError: It cannot be made exact.
    """
    if replicas.num == 1:
        return
    _refuse_inexact(model, replicas.num)
    optimizer = inner_optimizer(model)
    clips = [name for name in CLIP_THRESHOLDS if getattr(optimizer, name, None) is not None]
    for name in clips:
        setattr(optimizer, name, getattr(optimizer, name) / replicas.num)
    averages = bool(clips) or model.optimizer is not optimizer
    if averages:
        optimizer.update_step = _deduplicate_sparse(optimizer.update_step, replicas.num)
    model.optimizer.apply = _weigh_before(model.optimizer.apply, replicas, averages=averages)


def _refuse_inexact(model: keras.Model, num_replicas: int) -> None:
    """Refuse what Keras' optimizers decide or compute in each replica."""
    names = ["gradient_accumulation_steps", "ema_overwrite_frequency"]
    several = has_several_optimizers(model)
    if several:
        names += [*CLIP_THRESHOLDS, "use_ema"]
    found = [
        f"{name}={value}"
        for optimizer in optimizers_of(model)
        for name in names
        if (value := getattr(optimizer, name, None))
    ]
    if several and model.optimizer is not inner_optimizer(model):
        found.append("LossScaleOptimizer")
    if found:
        raise WorkloadError(
            f"{type(inner_optimizer(model)).__name__} with {', '.join(found)} cannot be kept exact "
            f"over {num_replicas} replicas: use one replica, or leave that out (in place of "
            "accumulated gradients, use a larger batch with micro_batches)"
        )


def refuse_other_optimizers(model: keras.Model, who: str) -> None:
    """Refuse a model that has optimizers besides the compiled one; ``who`` cannot train it."""
    others = [
        name
        for name, value in vars(model).items()
        if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer
    ]
    if others:
        raise WorkloadError(
            f"{type(model).__name__} has optimizers besides the compiled one "
            f"({', '.join(others)}), so {who} cannot train exactly: use one replica"
        )


def _weigh_before(apply: Apply, replicas: Replicas, *, averages: bool) -> Apply:
    """Weigh gradients by rows, and perhaps average them before clipping and NaN checks."""

    def apply_weighed(grads: Any, trainable_variables: Any = None) -> Any:
        gradients = replicas.weighted(list(grads))
        if averages:
            gradients = replicas.all_reduce_mean(gradients)
        return apply(gradients, trainable_variables)

    return apply_weighed


def _deduplicate_sparse(update_step: Apply, num_replicas: int) -> Apply:
    """Merge the rows of a sparse gradient that Keras' sum has repeated.

    A dense sum of R times G/R is G. A sparse sum lists every row R times with 1/R of its value, and
    optimizers such as Adam square each listed row.
    """

    def update_once(gradient: Any, variable: Any, learning_rate: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.shape(gradient.indices)[0] // num_replicas
            gradient = tf.IndexedSlices(
                gradient.values[:rows] * tf.cast(num_replicas, gradient.values.dtype),
                gradient.indices[:rows],
                gradient.dense_shape,
            )
        return update_step(gradient, variable, learning_rate)

    return update_once
