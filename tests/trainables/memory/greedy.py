"""A workload that needs more memory the more rows it takes at once."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tune_tf.workload import Data, Workload

ROWS = 64


@keras.saving.register_keras_serializable("tests")
class Greedy(keras.layers.Layer):
    """Passes on what it gets, and takes memory for each row above a number while it trains.

    Args:
        most: Rows for which it takes nothing.
        values: How many numbers it holds for each row above that.
    """

    def __init__(self, most, values, **settings):
        super().__init__(**settings)
        self.most, self.values = most, values

    def call(self, rows, training=False):
        if not training:
            return rows
        above = tf.maximum(tf.shape(rows)[0] - self.most, 0)
        held = tf.random.uniform([tf.cast(above, tf.int64) * self.values + 1])
        return rows + 1e-30 * tf.reduce_max(tf.sqrt(held))

    def get_config(self):
        return {**super().get_config(), "most": self.most, "values": self.values}


class GreedyWorkload(Workload):
    """Two batches of noise an epoch."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(2 * ROWS, 4)).astype("float32")
        y = rng.normal(size=(2 * ROWS, 1)).astype("float32")
        return Data(train=(x, y), validation=(x[:8], y[:8]))

    def build_model(self, config):
        model = keras.Sequential(
            [
                keras.Input([4]),
                Greedy(config["most"], config["values"]),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
        return model


class OwnStep(GreedyWorkload):
    """Takes a batch as a whole."""

    def train_step(self, model, batch):
        return model.train_step(batch)


class GreedyAtFirst(GreedyWorkload):
    """Has no memory for its weights the first time, as the file ``config["file"]`` tells."""

    def build_model(self, config):
        file = Path(config["file"])
        if not file.exists():
            file.touch()
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return super().build_model(config)
