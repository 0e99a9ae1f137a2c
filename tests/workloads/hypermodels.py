"""Hypermodels as KerasTuner's tutorials write them, and as workloads of a few rows."""

import keras
import keras_tuner
import numpy as np
from keras import layers

from tune_tf import Data, from_hypermodel

X = np.linspace(-1, 1, 6 * 64, dtype="float32").reshape(6, 8, 8, 1)
Y = np.arange(6) % 3
DATA = Data(train=(X, Y), validation=(X[:2], Y[:2]), test=(X[:1], Y[:1]))


def workload_of(build, data=DATA, **arguments):
    """Return a hypermodel as a workload of six rows."""
    return from_hypermodel(build, data, **arguments)


def space(build, **arguments):
    """Return the parameters that a hypermodel is found to have."""
    return dict(workload_of(build, **arguments).space.parameters)


class Classifier(keras_tuner.HyperModel):
    """Digits by a perceptron or by convolutions, with conditional scopes and a ``fit``."""

    def build(self, hp):
        model = keras.Sequential([keras.Input(shape=(8, 8, 1))])
        model_type = hp.Choice("model_type", ["mlp", "cnn"])
        with hp.conditional_scope("model_type", ["mlp"]):
            if model_type == "mlp":
                model.add(layers.Flatten())
                for i in range(hp.Int("num_layers", 1, 3)):
                    units = hp.Int(f"units_{i}", min_value=8, max_value=32, step=8)
                    model.add(layers.Dense(units, activation="relu"))
        with hp.conditional_scope("model_type", ["cnn"]):
            if model_type == "cnn":
                filters = hp.Int("filters", 4, 16, step=2, sampling="log")
                model.add(layers.Conv2D(filters, 3, activation="relu"))
                model.add(layers.GlobalAveragePooling2D())
        model.add(layers.Dense(10, activation="softmax"))
        optimizer = hp.Choice("optimizer", ["adam", "sgd"])
        learning_rate = hp.Float("learning_rate", 1e-3, 1e-1, sampling="log", default=1e-2)
        with hp.conditional_scope("optimizer", ["sgd"]):
            momentum = hp.Float("momentum", 0.0, 0.9, step=0.3)
        model.compile(
            optimizer=keras.optimizers.Adam(learning_rate)
            if optimizer == "adam"
            else keras.optimizers.SGD(learning_rate, momentum=momentum),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
        return model

    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, batch_size=hp.Choice("batch_size", [64, 128]), **kwargs)


def branches(hp):
    """A build that takes its branches in plain Python."""
    if hp.Boolean("deep") and hp.Choice("kind", ["a", "b", "c"]) in "bc":
        hp.Float("rate", 0, 1)
