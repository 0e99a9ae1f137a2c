"""Training and validation steps that are exact for any number of replicas.

One replica uses Keras' ``train_step``. With several, Keras is inexact in two common cases: it clips
gradients before it sums them, and it weighs the rows of an uneven last batch unequally. Here every
replica takes its share of the rows without padding, losses are weighted by row counts, and
gradients are averaged before clipping.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.gradients import add_gradients
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.row_weights import (
    loss_is_mean,
    loss_metric,
    relative_share,
    split_rows,
    track_loss,
    unpack_batch,
    weigh_loss,
)
from tune_tf.workload import Workload

Step = Callable[[int, Any, int], Any]
"""``step(replica, batch, num_rows)`` of one replica's rows; ``num_rows`` is of the global batch."""


def trains_by_workload(workload: Workload) -> bool:
    """Return whether the workload replaces ``train_step``."""
    return type(workload).train_step is not Workload.train_step or "train_step" in vars(workload)


def has_own_train_step(workload: Workload, model: keras.Model) -> bool:
    """Return whether the workload or the model replaces Keras' ``train_step``."""
    return (
        trains_by_workload(workload)
        or type(model).train_step is not keras.Model.train_step
        or "train_step" in vars(model)
    )


def has_own_test_step(model: keras.Model) -> bool:
    """Return whether the model replaces Keras' ``test_step``."""
    return type(model).test_step is not keras.Model.test_step or "test_step" in vars(model)


def train_step(
    workload: Workload, model: keras.Model, replicas: Replicas, micro_batches: int = 1
) -> Step:
    """Return the step that trains on a batch and updates the model's metrics.

    :func:`~tune_tf.training.core.update.prepare_optimizer` must have prepared the model. A replica
    processes its rows in ``micro_batches`` pieces, one after another.
    """
    if has_own_train_step(workload, model):
        own = _own_step(lambda batch: workload.train_step(model, batch), replicas)
        return own if replicas.num == 1 else _require_optimizer(own, workload, replicas)
    if replicas.num == 1 and micro_batches == 1:
        return lambda replica, batch, num_rows: workload.train_step(model, batch)

    row_weighted = loss_is_mean(model)
    tracker = loss_metric(model)
    unused: set[int] = set()  # variables without a gradient in replicas with rows

    def piece_step(batch: Any, share: float) -> tuple[Any, list[Any]]:
        x, y, sample_weight = unpack_batch(batch)
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            if share:
                loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
                loss = weigh_loss(loss, share, model, replicas.num, row_weighted=row_weighted)
            else:  # no rows, but other replicas wait for synchronized statistics
                loss = _zero_loss(y_pred)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        if share:
            unused.update(i for i, gradient in enumerate(gradients) if gradient is None)
            model.compute_metrics(x, y, y_pred, sample_weight)
        else:
            gradients = [
                None if i in unused else tf.zeros_like(variable) if gradient is None else gradient
                for i, (variable, gradient) in enumerate(zip(variables, gradients, strict=True))
            ]
        return loss, gradients

    def step(replica: int, batch: Any, num_rows: int) -> None:
        first, last = split_rows(num_rows, replica, replicas.num)
        # Equal in all replicas, which wait for each other's synchronized statistics.
        num_pieces = min(micro_batches, max(1, num_rows // replicas.num))
        loss: Any = 0.0
        gradients: list[Any] = [None] * len(model.trainable_variables)
        for number in range(num_pieces):
            begin, end = split_rows(last - first, number, num_pieces)
            share = relative_share(end - begin, num_rows, replicas.num)
            piece = batch if num_pieces == 1 else _slice_after(gradients, batch, begin, end)
            more_loss, more = piece_step(piece, share)
            loss = loss + more_loss
            gradients = [add_gradients(a, b) for a, b in zip(gradients, more, strict=True)]
        model.optimizer.apply(gradients, model.trainable_variables)
        track_loss(tracker, loss, num_rows, replicas.num)

    return step


def test_step(model: keras.Model, replicas: Replicas) -> Step:
    """Return the step that evaluates a batch and updates the model's metrics."""
    if has_own_test_step(model):
        return _own_step(model.test_step, replicas)
    if replicas.num == 1:
        return lambda replica, batch, num_rows: model.test_step(batch)

    row_weighted = loss_is_mean(model)
    tracker = loss_metric(model)

    def step(replica: int, batch: Any, num_rows: int) -> None:
        x, y, sample_weight = unpack_batch(batch)
        first, last = split_rows(num_rows, replica, replicas.num)
        if first == last:
            track_loss(tracker, tf.zeros([]), num_rows, replicas.num)
            return
        share = relative_share(last - first, num_rows, replicas.num)
        y_pred = model(x, training=False)
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=False)
        loss = weigh_loss(loss, share, model, replicas.num, row_weighted=row_weighted)
        track_loss(tracker, loss, num_rows, replicas.num)
        model.compute_metrics(x, y, y_pred, sample_weight)

    return step


def can_share_batch(num_rows: int, num_replicas: int) -> bool:
    """Return whether replicas can share a batch in a custom step.

    A custom step may divide by its number of rows. If a replica would have no rows, every replica
    therefore takes the whole batch.
    """
    return num_rows >= num_replicas


def _own_step(own: Callable[[Any], Any], replicas: Replicas) -> Step:
    """Return a step that runs a custom step for one device in every replica.

    The custom step's losses are means over a replica's rows; its gradients and logs are weighted by
    rows here.
    """
    if replicas.num == 1:
        return lambda replica, batch, num_rows: own(batch)

    def step(replica: int, batch: Any, num_rows: int) -> Any:
        first, last = split_rows(num_rows, replica, replicas.num)
        shared = can_share_batch(num_rows, replicas.num)
        share = relative_share(last - first, num_rows, replicas.num) if shared else 1.0
        with replicas.as_single_replica(share):
            logs = own(batch)
        if share == 1.0 or not isinstance(logs, Mapping):
            return logs
        return {name: value * share for name, value in logs.items()}

    return step


def _require_optimizer(step: Step, workload: Workload, replicas: Replicas) -> Step:
    """Return a step that refuses updates without the optimizer, which would differ by replica."""

    def updating(replica: int, batch: Any, num_rows: int) -> Any:
        logs = step(replica, batch, num_rows)
        if not replicas.has_weighed_gradients:
            raise WorkloadError(
                f"the train_step of {type(workload).__name__} or its model changes weights without "
                "model.optimizer, so the replicas would diverge: call "
                "model.optimizer.apply(gradients, variables), or use one replica"
            )
        return logs

    return updating


def _slice_after(done: list[Any], batch: Any, begin: int, end: int) -> Any:
    """Return rows once earlier gradients are done, so that memory holds one piece only."""
    finished = [g for g in tf.nest.flatten(done, expand_composites=True) if g is not None]
    with tf.control_dependencies(finished):
        return tf.nest.map_structure(lambda a: tf.identity(a[begin:end]), batch)


def _zero_loss(y_pred: Any) -> Any:
    """Return a zero that depends on a prediction without rows."""
    return tf.add_n([tf.cast(tf.reduce_sum(part), tf.float32) for part in tf.nest.flatten(y_pred)])
