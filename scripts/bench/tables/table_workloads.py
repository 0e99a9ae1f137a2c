"""Workloads whose learning curves are in the tables: small models on real or generated rows.

Each reads ``optimizer``, ``learning_rate``, ``batch_size`` and ``dropout`` from a config, and what
its docstring names. Validation rows are 30 % of all.
"""

from typing import Any

import keras
import numpy as np
from keras import layers
from sklearn import datasets

from tune_tf.workload import Config, Data, Workload

_VALIDATION_SHARE = 0.3
_SEED = 0


def _split(x: Any, y: Any, num_train: int | None = None) -> Data:
    """Return shuffled training and validation rows; at most ``num_train`` of the former."""
    order = np.random.default_rng(_SEED).permutation(len(x))
    validation, train = np.split(order, [round(len(x) * _VALIDATION_SHARE)])
    train = train[:num_train]
    return Data(train=(x[train], y[train]), validation=(x[validation], y[validation]))


def _scaled(data: Data) -> Data:
    """Return rows whose columns have mean 0 and deviation 1 among the training rows."""
    (x, y), (x_validation, y_validation) = data.train, data.validation
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    x, x_validation = ((each - mean) / deviation for each in (x, x_validation))
    return Data((x.astype(np.float32), y), (x_validation.astype(np.float32), y_validation))


def _optimizer(config: Config) -> keras.optimizers.Optimizer:
    rate = float(config["learning_rate"])
    make = {
        "adam": lambda: keras.optimizers.Adam(rate),
        "adamw": lambda: keras.optimizers.AdamW(rate, weight_decay=float(config["weight_decay"])),
        "rmsprop": lambda: keras.optimizers.RMSprop(rate),
        "sgd": lambda: keras.optimizers.SGD(rate, momentum=0.9),
    }
    return make[config["optimizer"]]()


def _perceptron(config: Config, num_inputs: int, num_hidden: int = 2) -> keras.Sequential:
    """Return hidden layers of ``width`` units with dropout, and one output."""
    model = keras.Sequential([keras.Input((num_inputs,))])
    for _ in range(num_hidden):
        model.add(layers.Dense(config["width"], activation=config.get("activation", "relu")))
        model.add(layers.Dropout(float(config["dropout"])))
    model.add(layers.Dense(1))
    return model


class BreastCancerMLP(Workload):
    """Scikit-learn's breast cancer data, 569 tumours; ``activation``, ``width``."""

    def load_data(self, config: Config) -> Data:
        """Return scaled measurements, ``[rows, 30]``, and labels."""
        x, y = datasets.load_breast_cancer(return_X_y=True)
        return _scaled(_split(x, y.astype(np.float32)[:, None]))

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        model = _perceptron(config, 30)
        model.compile(_optimizer(config), keras.losses.BinaryCrossentropy(from_logits=True))
        return model


class DiabetesRegression(Workload):
    """Regression on scikit-learn's diabetes data; ``width``, ``num_layers``, ``l2``."""

    def load_data(self, config: Config) -> Data:
        """Return scaled measurements, ``[rows, 10]``, and the progression, scaled as well."""
        x, y = datasets.load_diabetes(return_X_y=True)
        y = ((y - y.mean()) / y.std()).astype(np.float32)[:, None]
        return _scaled(_split(x, y))

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model; its metric leaves out the penalty."""
        model = _perceptron(config, 10, num_hidden=config["num_layers"])
        for layer in model.layers:
            if isinstance(layer, layers.Dense):
                layer.kernel_regularizer = keras.regularizers.L2(float(config["l2"]))
        model.compile(_optimizer(config), "mse", metrics=["mse"])
        return model


class DigitsCNN(Workload):
    """A convolution and a dense layer on scikit-learn's digits; ``filters``, ``kernel``."""

    def load_data(self, config: Config) -> Data:
        """Return pictures of values up to 1, ``[rows, 8, 8, 1]``, and labels."""
        x, y = datasets.load_digits(return_X_y=True)
        return _split((x / 16).reshape(-1, 8, 8, 1).astype(np.float32), y.astype(np.int32), 800)

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(config["filters"], config["kernel"], activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dropout(float(config["dropout"])),
                layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(_optimizer(config), loss)
        return model


class GeneratedText(Workload):
    """Two kinds of texts of 24 words, told apart by a pair of words; ``units``, ``pooling``.

    Words follow Zipf's law. A text is positive if it has more words of one list than of another;
    a tenth of the labels are wrong.
    """

    def load_data(self, config: Config) -> Data:
        """Return numbers of words, int32, ``[rows, 24]``, and labels."""
        generator = np.random.default_rng(_SEED)
        num_rows, num_words = 1500, 400
        shares = 1 / np.arange(1, num_words + 1)
        x = generator.choice(num_words, (num_rows, 24), p=shares / shares.sum()).astype(np.int32)
        lists = generator.permutation(num_words).reshape(4, -1)
        score = np.isin(x, lists[0]).sum(axis=1) - np.isin(x, lists[1]).sum(axis=1)
        is_wrong = generator.random(num_rows) < 0.1
        return _split(x, ((score > 0) ^ is_wrong).astype(np.float32)[:, None])

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        pooling = {
            "average": layers.GlobalAveragePooling1D,
            "largest": layers.GlobalMaxPooling1D,
        }[config["pooling"]]
        model = keras.Sequential(
            [
                keras.Input((24,), dtype="int32"),
                layers.Embedding(400, config["units"]),
                pooling(),
                layers.Dropout(float(config["dropout"])),
                layers.Dense(1),
            ]
        )
        model.compile(_optimizer(config), keras.losses.BinaryCrossentropy(from_logits=True))
        return model


class UnbalancedRows(Workload):
    """Generated rows of which 4 % are positive; ``width``, and their weight, ``positive_weight``.

    The metric is the area under the curve of precision over recall.
    """

    def load_data(self, config: Config) -> Data:
        """Return rows, ``[rows, 20]``, and labels."""
        x, y = datasets.make_classification(
            3000, 20, n_informative=6, weights=[0.96], class_sep=0.8, random_state=_SEED
        )
        return _scaled(_split(x, y.astype(np.float32)[:, None]))

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        weight = float(config["positive_weight"])

        def loss(labels: Any, logits: Any) -> Any:
            losses = keras.losses.binary_crossentropy(labels, logits, from_logits=True)
            return losses * (1 + (weight - 1) * labels[:, 0])

        model = _perceptron(config, 20)
        area = keras.metrics.AUC(curve="PR", from_logits=True, name="auc_pr")
        model.compile(_optimizer(config), loss, metrics=[area])
        return model


class WrongLabels(Workload):
    """Digits of which a third has a wrong label, so that fast starters overfit; ``width``.

    AdamW with ``weight_decay``; the validation labels are right.
    """

    def load_data(self, config: Config) -> Data:
        """Return pictures as rows of values up to 1, ``[rows, 64]``, and labels."""
        x, y = datasets.load_digits(return_X_y=True)
        data = _split((x / 16).astype(np.float32), y.astype(np.int32), 500)
        generator = np.random.default_rng(_SEED)
        x, y = data.train
        y = np.where(generator.random(len(y)) < 1 / 3, generator.integers(0, 10, len(y)), y)
        return Data((x, y.astype(np.int32)), data.validation)

    def build_model(self, config: Config) -> keras.Model:
        """Return the compiled model."""
        model = keras.Sequential(
            [
                keras.Input((64,)),
                layers.Dense(config["width"], activation="relu"),
                layers.Dropout(float(config["dropout"])),
                layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(_optimizer({**config, "optimizer": "adamw"}), loss)
        return model
