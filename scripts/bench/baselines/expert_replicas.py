"""Epochs by a hand-written ``tf.function`` for one model under one strategy."""

import keras
import numpy as np
import tensorflow as tf

from baselines.fit_epochs import Arrays, Order


class ExpertReplicas:
    """Epoch as one graph call of ``strategy.run`` over resident data.

    Batches must divide by the replicas.

    Args:
        model: A compiled classifier with integer labels, built in the scope of ``strategy``.
        strategy: What it trains under.
        train: Training rows.
        validation: Validation rows.
        order: The order of the rows.
        batch_size: Rows of one gradient update.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        train: Arrays,
        validation: Arrays,
        *,
        order: Order,
        batch_size: int,
    ) -> None:
        self.losses: list[tuple[float, float]] = []
        self._order = order
        self._next = order(0)
        self._epoch = _epoch_function(model, strategy, train, validation, batch_size)

    def prepare(self) -> None:
        """Draw the epoch's order."""
        self._next = self._order(len(self.losses))

    def run(self) -> None:
        """Train and validate for one epoch."""
        logs = {name: float(value) for name, value in self._epoch(self._next).items()}
        self.losses.append((logs["loss"], logs["val_loss"]))


def _epoch_function(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: Arrays,
    validation: Arrays,
    batch_size: int,
) -> tf.types.experimental.PolymorphicFunction:
    x, y = (tf.constant(part) for part in train)
    val_x, val_y = (tf.constant(part) for part in validation)
    num_replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        mean_loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        model.optimizer.build(model.trainable_variables)

    def share(rows: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        each = tf.shape(rows)[0] // num_replicas
        return rows[replica * each : (replica + 1) * each]

    def keep(loss: tf.Tensor, batch_y: tf.Tensor, logits: tf.Tensor) -> None:
        mean_loss.update_state(loss * num_replicas, sample_weight=tf.shape(batch_y)[0])
        accuracy.update_state(batch_y, logits)

    def train_step(rows: tf.Tensor) -> None:
        chosen = share(rows)
        batch_x, batch_y = tf.gather(x, chosen), tf.gather(y, chosen)
        with tf.GradientTape() as tape:
            logits = model(batch_x, training=True)
            loss = model.loss(batch_y, logits)  # Keras divides it by the replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        keep(loss, batch_y, logits)

    def validation_step(batch_x: tf.Tensor, batch_y: tf.Tensor) -> None:
        batch_x, batch_y = share(batch_x), share(batch_y)
        logits = model(batch_x, training=False)
        keep(model.loss(batch_y, logits), batch_y, logits)

    def reset() -> None:
        mean_loss.reset_state()
        accuracy.reset_state()

    @tf.function
    def epoch(order: np.ndarray) -> dict[str, tf.Tensor]:
        reset()
        for first in tf.range(0, len(train[0]), batch_size):
            strategy.run(train_step, args=(order[first : first + batch_size],))
        logs = {"loss": mean_loss.result(), "accuracy": accuracy.result()}
        reset()
        for first in tf.range(0, len(validation[0]), batch_size):
            last = first + batch_size
            strategy.run(validation_step, args=(val_x[first:last], val_y[first:last]))
        logs["val_loss"], logs["val_accuracy"] = mean_loss.result(), accuracy.result()
        return logs

    return epoch
