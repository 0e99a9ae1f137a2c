"""Workloads on handwritten digits: 1,797 grey images of 8 x 8 pixels from scikit-learn."""

from typing import Any

import numpy as np

from tune_tf.workload import Config, Data, Workload
from tune_tf.workloads.head import Head, convolutions, dense_layers

NUM_CLASSES = 10
_SHARE = 0.2  # of validation rows, and of test rows


class _Digits(Workload):
    """Digits, split into training, validation and test rows.

    All trials get the same split, unless the search space contains ``split_seed``.
    """

    def load_data(self, config: Config) -> Data:
        """Return images of shape ``[rows, 8, 8, 1]`` in [0, 1] and labels ``[rows]``."""
        from sklearn.datasets import load_digits  # late: slow to import

        images, labels = load_digits(return_X_y=True)
        x = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
        y = labels.astype(np.int32)
        order = np.random.default_rng(config.get("split_seed", 0)).permutation(len(x))
        size = round(len(x) * _SHARE)
        test, validation, train = np.split(order, [size, 2 * size])
        return Data((x[train], y[train]), (x[validation], y[validation]), (x[test], y[test]))


class DigitsMLP(_Digits):
    """Perceptron; reads the config values of ``dense_layers`` and ``make_optimizer``."""

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        images = keras.Input((8, 8, 1))
        features = dense_layers(keras.layers.Flatten()(images), config)
        return Head(NUM_CLASSES).compiled(images, features, config)


class DigitsCNN(_Digits):
    """Two convolutions; reads the config values of ``convolutions`` and ``make_optimizer``."""

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        images = keras.Input((8, 8, 1))
        return Head(NUM_CLASSES).compiled(images, convolutions(images, config), config)
