"""Epochs by a hand-written ``tf.function`` for one sequential model split into stages."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from baselines.fit_epochs import Arrays, Order


class ExpertStages:
    """Replicas and stages with micro-batches for one model; batches must be divisible.

    Args:
        model: A compiled sequential classifier with integer labels and SGD, whose weights the
            copies start from.
        cut: Number of the first layer of each stage.
        devices: Of the stages of each replica.
        train: Training rows.
        validation: Validation rows.
        order: The order of the rows.
        batch_size: Rows of one gradient update.
        micro_batches: Pieces of a replica's part of it.
    """

    def __init__(
        self,
        model: keras.Sequential,
        cut: Sequence[int],
        devices: Sequence[Sequence[str]],
        train: Arrays,
        validation: Arrays,
        *,
        order: Order,
        batch_size: int,
        micro_batches: int,
    ) -> None:
        self.losses: list[tuple[float, float]] = []
        self._order = order
        self._next = order(0)
        self._loss = model.loss
        self._replicas = [_copies(model, cut, row) for row in devices]
        self._devices = devices
        self._optimizers = [
            keras.optimizers.SGD(float(model.optimizer.learning_rate), model.optimizer.momentum)
            for _ in cut
        ]
        for optimizer, stage, device in zip(
            self._optimizers, self._replicas[0], devices[0], strict=True
        ):
            with tf.device(device):
                optimizer.build(stage.trainable_variables)
        self._mean_loss = keras.metrics.Mean()
        self._accuracy = keras.metrics.SparseCategoricalAccuracy()
        self._rows = [tf.constant(part) for part in (*train, *validation)]
        self._batch_size, self._micro_batches = batch_size, micro_batches
        self._epoch = tf.function(self._run_epoch)

    def prepare(self) -> None:
        """Draw the epoch's order."""
        self._next = self._order(len(self.losses))

    def run(self) -> None:
        """Train and validate for one epoch."""
        loss, _, val_loss, _ = (float(value) for value in self._epoch(self._next))
        self.losses.append((loss, val_loss))

    def _run_epoch(self, order: np.ndarray) -> tuple[tf.Tensor, ...]:
        x, y, val_x, val_y = self._rows
        self._reset()
        for first in tf.range(0, len(x), self._batch_size):
            rows = order[first : first + self._batch_size]
            self._train(tf.gather(x, rows), tf.gather(y, rows))
        logs = self._mean_loss.result(), self._accuracy.result()
        self._reset()
        for first in tf.range(0, len(val_x), self._batch_size):
            last = first + self._batch_size
            value = val_x[first:last]
            for stage, device in zip(self._replicas[0], self._devices[0], strict=True):
                with tf.device(device):
                    value = stage(value, training=False)
            loss = self._loss(val_y[first:last], value)
            self._keep(loss, val_y[first:last], value)
        return *logs, self._mean_loss.result(), self._accuracy.result()

    def _train(self, x: tf.Tensor, y: tf.Tensor) -> None:
        num_pieces = len(self._replicas) * self._micro_batches
        size = tf.shape(x)[0] // num_pieces
        sums: list[list[tf.Tensor]] = [[] for _ in self._optimizers]
        for number in range(num_pieces):
            replica = number // self._micro_batches
            piece = slice(number * size, (number + 1) * size)
            gradients = self._gradients(replica, x[piece], y[piece], num_pieces)
            for stage, more in enumerate(gradients):
                with tf.device(self._devices[0][stage]):
                    held = sums[stage]
                    sums[stage] = [a + b for a, b in zip(held, more, strict=True)] if held else more
        for stage, (optimizer, gradients) in enumerate(zip(self._optimizers, sums, strict=True)):
            own = self._replicas[0][stage].trainable_variables
            with tf.device(self._devices[0][stage]):
                optimizer.apply(gradients, own)
            for other in self._replicas[1:]:
                for variable, value in zip(other[stage].trainable_variables, own, strict=True):
                    variable.assign(value)

    def _gradients(
        self, replica: int, x: tf.Tensor, y: tf.Tensor, num_pieces: int
    ) -> list[list[tf.Tensor]]:
        stages, devices = self._replicas[replica], self._devices[replica]
        tapes, taken, made = [], [], []
        value = x
        for number, (stage, device) in enumerate(zip(stages, devices, strict=True)):
            with tf.device(device), tf.GradientTape() as tape:
                tape.watch(value)
                taken.append(value)
                value = stage(value, training=True)
                if number == len(stages) - 1:
                    loss = self._loss(y, value)
                    made.append(loss / num_pieces)
                else:
                    made.append(value)
            tapes.append(tape)
        self._keep(loss, y, value)
        found: list[list[tf.Tensor]] = []
        handed = None
        for number in reversed(range(len(stages))):
            with tf.device(devices[number]):
                own, handed = tapes[number].gradient(
                    made[number],
                    (stages[number].trainable_variables, taken[number]),
                    output_gradients=handed,
                )
            found.insert(0, own)
        return found

    def _keep(self, loss: tf.Tensor, y: tf.Tensor, logits: tf.Tensor) -> None:
        self._mean_loss.update_state(loss, sample_weight=tf.shape(y)[0])
        self._accuracy.update_state(y, logits)

    def _reset(self) -> None:
        self._mean_loss.reset_state()
        self._accuracy.reset_state()


def _copies(
    model: keras.Sequential, cut: Sequence[int], devices: Sequence[str]
) -> list[keras.Sequential]:
    """Return the stages of one replica, each built on its device."""
    stages = []
    for begin, end, device in zip(cut, (*cut[1:], None), devices, strict=True):
        with tf.device(device):
            originals = model.layers[begin:end]
            copies = [type(each).from_config(each.get_config()) for each in originals]
            stage = keras.Sequential([keras.Input(originals[0].input.shape[1:]), *copies])
        for copy, original in zip(copies, originals, strict=True):
            copy.set_weights(original.get_weights())
        stages.append(stage)
    return stages
