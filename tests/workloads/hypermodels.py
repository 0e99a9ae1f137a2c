"""Hypermodels as KerasTuner's tutorials write them."""

import keras
import keras_tuner
from keras import layers


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
        learning_rate = hp.Float("learning.rate", 1e-3, 1e-1, sampling="log", default=1e-2)
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
