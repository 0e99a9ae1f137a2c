"""A workload whose model has inputs by name."""

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
