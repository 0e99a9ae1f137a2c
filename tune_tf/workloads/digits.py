"""Workloads on handwritten digits: 1,797 grey images of 8 x 8 pixels from scikit-learn."""

from typing import Any

import numpy as np

from tune_tf.workload import Config, Data, Workload
from tune_tf.workloads.head import compile_classifier

NUM_CLASSES = 10
_TEST_SHARE = 0.2
_VALIDATION_SHARE = 0.2
_SPLIT_SEED = 0


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
        order = np.random.default_rng(config.get("split_seed", _SPLIT_SEED)).permutation(len(x))
        num_test = round(len(x) * _TEST_SHARE)
        num_validation = round(len(x) * _VALIDATION_SHARE)
        test, validation, train = np.split(order, [num_test, num_test + num_validation])
        return Data(
            train=(x[train], y[train]),
            validation=(x[validation], y[validation]),
            test=(x[test], y[test]),
        )


class DigitsMLP(_Digits):
    """Perceptron with ``num_layers`` hidden layers of ``width`` units and dropout.

    Config values read: ``width`` (default 128), ``num_layers`` (1), ``dropout`` (0), and those of
    :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        layers = [keras.Input((8, 8, 1)), keras.layers.Flatten()]
        for _ in range(int(config.get("num_layers", 1))):
            layers.append(keras.layers.Dense(int(config.get("width", 128)), activation="relu"))
            layers.append(keras.layers.Dropout(float(config.get("dropout", 0.0))))
        layers.append(keras.layers.Dense(NUM_CLASSES))
        return compile_classifier(keras.Sequential(layers), config)


class DigitsCNN(_Digits):
    """Two convolutions, the second with twice the ``filters``, pooling, and a dense layer.

    Config values read: ``filters`` (default 16), ``width`` (64), ``dropout`` (0), ``batch_norm``
    (False), and those of :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        filters = int(config.get("filters", 16))
        layers = [keras.Input((8, 8, 1))]
        for count in (filters, 2 * filters):
            layers.append(keras.layers.Conv2D(count, 3, padding="same", use_bias=True))
            if config.get("batch_norm", False):
                layers.append(keras.layers.BatchNormalization())
            layers.append(keras.layers.Activation("relu"))
            layers.append(keras.layers.MaxPooling2D())
        layers.append(keras.layers.Flatten())
        layers.append(keras.layers.Dense(int(config.get("width", 64)), activation="relu"))
        layers.append(keras.layers.Dropout(float(config.get("dropout", 0.0))))
        layers.append(keras.layers.Dense(NUM_CLASSES))
        return compile_classifier(keras.Sequential(layers), config)
