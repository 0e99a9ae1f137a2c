"""Workloads whose models have inputs by name, or parts of the user's own."""

import keras
import numpy as np

from tune_tf.workload import Data, Workload

_ROWS = np.linspace(-1, 1, 48).reshape(16, 3)


class TwoInputs(Workload):
    """A model of two inputs, whose data come as a tuple in double precision."""

    def load_data(self, config):
        return Data(train=((_ROWS, _ROWS[:, :2]), _ROWS[:, 0]))

    def build_model(self, config):
        inputs = [keras.Input((3,), name="left"), keras.Input((2,), name="right")]
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(inputs)))
        model.compile("sgd", "mse")
        return model


class Halved(keras.layers.Layer):
    """A layer that Keras does not know."""

    def call(self, x):
        """Return half of it."""
        return x / 2


def own_loss(y_true, y_pred):
    """Return a loss that Keras does not know."""
    return keras.ops.mean(keras.ops.square(y_true - y_pred))


class OwnLayer(Workload):
    """A model with parts of the user's own."""

    def load_data(self, config):
        return Data(train=(_ROWS, _ROWS[:, 0]))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((3,)), Halved(), keras.layers.Dense(1)])
        model.compile("sgd", own_loss)
        return model
