"""Epochs by a hand-written ``tf.function`` for one model."""

import keras
import numpy as np
import tensorflow as tf

from baselines.fit_epochs import Arrays, Order


class ExpertEpochs:
    """Training and validation of one epoch as one graph call over resident data.

    Args:
        model: A compiled classifier with integer labels; its optimizer and loss are used.
        train: Training rows.
        validation: Validation rows.
        order: The order of the rows.
        batch_size: Rows of one gradient update.
    """

    def __init__(
        self,
        model: keras.Model,
        train: Arrays,
        validation: Arrays,
        *,
        order: Order,
        batch_size: int,
    ) -> None:
        self.losses: list[tuple[float, float]] = []
        self._order = order
        self._next = order(0)
        self._epoch = _epoch_function(model, train, validation, batch_size)

    def prepare(self) -> None:
        """Draw the epoch's order."""
        self._next = self._order(len(self.losses))

    def run(self) -> None:
        """Train and validate for one epoch."""
        logs = {name: float(value) for name, value in self._epoch(self._next).items()}
        self.losses.append((logs["loss"], logs["val_loss"]))


def _epoch_function(
    model: keras.Model, train: Arrays, validation: Arrays, batch_size: int
) -> tf.types.experimental.PolymorphicFunction:
    x, y = (tf.constant(part) for part in train)
    val_x, val_y = (tf.constant(part) for part in validation)
    num_rows, num_validation_rows = len(train[0]), len(validation[0])
    num_batches = -(-num_rows // batch_size)
    num_validation_batches = -(-num_validation_rows // batch_size)
    mean_loss = keras.metrics.Mean()
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    model.optimizer.build(model.trainable_variables)

    def reset() -> None:
        mean_loss.reset_state()
        accuracy.reset_state()

    @tf.function
    def epoch(order: np.ndarray) -> dict[str, tf.Tensor]:
        reset()
        for i in tf.range(num_batches):
            chosen = order[i * batch_size : (i + 1) * batch_size]
            batch_x, batch_y = tf.gather(x, chosen), tf.gather(y, chosen)
            with tf.GradientTape() as tape:
                logits = model(batch_x, training=True)
                loss = model.loss(batch_y, logits)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply(gradients, model.trainable_variables)
            mean_loss.update_state(loss, sample_weight=tf.shape(chosen)[0])
            accuracy.update_state(batch_y, logits)
        logs = {"loss": mean_loss.result(), "accuracy": accuracy.result()}
        reset()
        for i in tf.range(num_validation_batches):
            batch_x = val_x[i * batch_size : (i + 1) * batch_size]
            batch_y = val_y[i * batch_size : (i + 1) * batch_size]
            logits = model(batch_x, training=False)
            loss = model.loss(batch_y, logits)
            mean_loss.update_state(loss, sample_weight=tf.shape(batch_y)[0])
            accuracy.update_state(batch_y, logits)
        logs["val_loss"], logs["val_accuracy"] = mean_loss.result(), accuracy.result()
        return logs

    return epoch
