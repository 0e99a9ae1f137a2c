"""Scikit-learn's breast cancer data: 569 tumours, 30 measurements each, malignant or benign."""

from typing import Any

import numpy as np

from tune_tf.workload import Config, Data, Workload

_VALIDATION_SHARE = 0.3
_SPLIT_SEED = 0


class BreastCancerMLP(Workload):
    """A perceptron with two hidden layers of ``width`` units, an ``activation`` and dropout.

    Reads from a config: ``optimizer`` (adam, rmsprop or sgd with momentum 0.9), ``activation``,
    ``batch_size``, ``width``, ``learning_rate`` and ``dropout``.
    """

    def load_data(self, config: Config) -> Data:
        """Return measurements scaled by the training rows, ``[rows, 30]``, and labels."""
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        order = np.random.default_rng(_SPLIT_SEED).permutation(len(x))
        validation, train = np.split(order, [round(len(x) * _VALIDATION_SHARE)])
        mean, deviation = x[train].mean(axis=0), x[train].std(axis=0)
        x, y = ((x - mean) / deviation).astype(np.float32), y.astype(np.float32)[:, None]
        return Data(train=(x[train], y[train]), validation=(x[validation], y[validation]))

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        rate = float(config["learning_rate"])
        optimizers = {
            "adam": lambda: keras.optimizers.Adam(rate),
            "rmsprop": lambda: keras.optimizers.RMSprop(rate),
            "sgd": lambda: keras.optimizers.SGD(rate, momentum=0.9),
        }
        layers = [keras.Input((30,))]
        for _ in range(2):
            layers.append(keras.layers.Dense(config["width"], activation=config["activation"]))
            layers.append(keras.layers.Dropout(float(config["dropout"])))
        layers.append(keras.layers.Dense(1))
        model = keras.Sequential(layers)
        model.compile(
            optimizer=optimizers[config["optimizer"]](),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
        )
        return model
