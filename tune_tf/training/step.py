"""One gradient update and one validation batch, exact for any number of replicas.

With one replica a batch goes through Keras' own ``train_step``. With several, Keras is wrong in
two common cases (clipping happens before the gradients are summed; an uneven last batch weighs
rows unequally), so the step is done here: every replica takes its share of the real rows, nothing
is padded, losses are scaled by real row counts, and gradients are averaged before the clip.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.replicas import Replicas
from tune_tf.workload import Workload

Step = Callable[[int, Any, int], Any]
"""``step(replica, batch, num_rows)``: one batch in one replica.

``batch`` holds the replica's rows, ``num_rows`` counts those of the global batch.
"""


def split(num_rows: int, replica: int, num_replicas: int) -> tuple[int, int]:
    """Return the rows ``[first, last)`` of a global batch that a replica works on."""
    return num_rows * replica // num_replicas, num_rows * (replica + 1) // num_replicas


def has_own_train_step(workload: Workload, model: keras.Model) -> bool:
    """Return whether the workload or the model replaces Keras' ``train_step``."""
    return (
        type(workload).train_step is not Workload.train_step
        or type(model).train_step is not keras.Model.train_step
    )


def has_own_test_step(model: keras.Model) -> bool:
    """Return whether the model replaces Keras' ``test_step``."""
    return type(model).test_step is not keras.Model.test_step


def train_step(workload: Workload, model: keras.Model, replicas: Replicas) -> Step:
    """Return the step that trains on a batch and updates the model's metrics."""
    if replicas.num == 1 or has_own_train_step(workload, model):
        return lambda replica, batch, num_rows: workload.train_step(model, batch)

    row_weighted = _loss_is_mean(model)
    loss_metric = _loss_metric(model)
    unused: set[int] = set()  # variables without a gradient, as seen in replicas with rows

    def step(replica: int, batch: Any, num_rows: int) -> None:
        x, y, sample_weight = _unpack(batch)
        share = _share(num_rows, replica, replicas.num)
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            if share:
                loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
                loss = _by_rows(loss, share if row_weighted else 1.0, model, replicas.num)
            else:  # no rows: only what other replicas wait for (synchronized statistics)
                loss = _by_rows(_nothing_of(y_pred), share, model, replicas.num)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        if share:
            unused.update(i for i, gradient in enumerate(gradients) if gradient is None)
        else:
            gradients = [
                None if i in unused else tf.zeros_like(variable) if gradient is None else gradient
                for i, (variable, gradient) in enumerate(zip(variables, gradients, strict=True))
            ]
        model.optimizer.apply(gradients, variables)
        _track_loss(loss_metric, loss, num_rows, replicas.num)
        if share:
            model.compute_metrics(x, y, y_pred, sample_weight)

    return step


def test_step(model: keras.Model, replicas: Replicas) -> Step:
    """Return the step that evaluates a batch and updates the model's metrics."""
    if replicas.num == 1 or has_own_test_step(model):
        return lambda replica, batch, num_rows: model.test_step(batch)

    row_weighted = _loss_is_mean(model)
    loss_metric = _loss_metric(model)

    def step(replica: int, batch: Any, num_rows: int) -> None:
        x, y, sample_weight = _unpack(batch)
        share = _share(num_rows, replica, replicas.num)
        if not share:
            penalties = _by_rows(tf.zeros([]), share, model, replicas.num)
            _track_loss(loss_metric, penalties, num_rows, replicas.num)
            return
        y_pred = model(x, training=False)
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=False)
        loss = _by_rows(loss, share if row_weighted else 1.0, model, replicas.num)
        _track_loss(loss_metric, loss, num_rows, replicas.num)
        model.compute_metrics(x, y, y_pred, sample_weight)

    return step


def _unpack(batch: Any) -> tuple[Any, Any, Any]:
    x, y, sample_weight = (*batch, None, None)[:3]
    return x, y, sample_weight


def _share(num_rows: int, replica: int, num_replicas: int) -> float:
    """Return the replica's share of the rows over an even share; 1 for an even batch."""
    first, last = split(num_rows, replica, num_replicas)
    return (last - first) * num_replicas / num_rows


def _by_rows(loss: Any, share: float, model: keras.Model, num_replicas: int) -> Any:
    """Weigh a replica's mean loss by its rows; weight penalties count once whatever the rows."""
    if share == 1.0:
        return loss
    penalties = [
        variable.regularizer(variable)
        for variable in model.trainable_variables
        if variable.regularizer is not None
    ]
    return share * loss + (1 - share) * sum(penalties) / num_replicas


def _nothing_of(y_pred: Any) -> Any:
    """Return a zero that is connected to a prediction without rows."""
    return tf.add_n([tf.cast(tf.reduce_sum(part), tf.float32) for part in tf.nest.flatten(y_pred)])


def _track_loss(metric: Any, loss: Any, num_rows: int, num_replicas: int) -> None:
    metric.update_state(loss * num_replicas, sample_weight=num_rows / num_replicas)


def _loss_metric(model: keras.Model) -> Any:
    return next(metric for metric in model.metrics if metric.name == "loss")


def _loss_is_mean(model: keras.Model) -> bool:
    """Return whether the compiled losses are means over rows; False where they are sums.

    Raises:
        WorkloadError: They are neither, so no rows-based weight makes replicas exact.
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
