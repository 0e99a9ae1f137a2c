"""Layers, output layer, loss and optimizer of models on users' own data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config
from tune_tf.workloads.settings_workload import TaskKind

_MAX_BLOCKS = 4
_FLATTENED = 16  # more positions are averaged: flattened, they would make a huge dense layer
_MAX_CLASSES_OF_NUMBERS = 20  # integers with more distinct values are amounts, not classes
_MAX_LISTED = 5


@dataclass(frozen=True)
class Head:
    """Output layer of a model, with its loss and metric.

    For regression ``num_classes`` is None, and means and standard deviations (``scales``, none 0)
    are those of the predicted numbers over the training rows.
    """

    num_classes: int | None = None
    means: tuple[float, ...] = (0.0,)
    scales: tuple[float, ...] = (1.0,)

    @classmethod
    def of_numbers(cls, y: Any) -> "Head":
        """Return a regression head for targets of shape ``[rows]`` or ``[rows, numbers]``."""
        values = np.asarray(y, np.float64).reshape(len(y), -1)
        scales = values.std(axis=0)
        scales[scales == 0] = 1
        return cls(None, tuple(values.mean(axis=0).tolist()), tuple(scales.tolist()))

    @property
    def task(self) -> str:
        """``"regression"`` or ``"classification"``."""
        return "regression" if self.num_classes is None else "classification"

    def compiled(self, inputs: Any, features: Any, config: Config) -> Any:
        """Return a compiled model on ``features`` of shape ``[rows, features]``.

        Classification gives logits of shape ``[rows, classes]`` and the metric ``accuracy``.
        Regression predicts in the unit of the target; its loss is the squared error divided by the
        target's variance, its metric is ``mae`` in the unit of the target.
        """
        import keras

        if self.num_classes is not None:
            model = keras.Model(inputs, keras.layers.Dense(self.num_classes)(features))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(make_optimizer(config), loss=loss, metrics=["accuracy"])
            return model
        values = keras.layers.Dense(len(self.means))(features)
        # Converts to the unit of the target, so a served model needs no separate statistics.
        values = keras.layers.Normalization(
            mean=np.array(self.means), variance=np.square(self.scales), invert=True
        )(values)
        model = keras.Model(inputs, values)
        weight = 1 / float(np.mean(np.square(self.scales)))
        model.compile(make_optimizer(config), loss="mse", loss_weights=[weight], metrics=["mae"])
        return model


def is_classification(y: Any, task: TaskKind) -> bool:
    """Return whether a target contains classes; ``auto``: few distinct integers, or booleans."""
    if task != "auto":
        return task == "classification"
    return y.dtype.kind in "biu" and len(np.unique(y)) <= _MAX_CLASSES_OF_NUMBERS


def class_numbers(y: Any, part: str) -> "np.ndarray[Any, Any]":
    """Return the class numbers ``y`` of a part, of shape ``[rows]`` or ``[rows, 1]``, as int32.

    Raises:
        WorkloadError: A class number is not an integer from 0; names the rows.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise WorkloadError(
            f"y of {part} is {y.dtype} of shape {list(y.shape)}, but classes are one integer from "
            "0 per row: convert one-hot rows with argmax, or set task: regression"
        )
    wrong = ~np.isfinite(y) | (y != np.floor(y)) | (y < 0)
    if wrong.any():
        raise WorkloadError(
            f"y of {part} must hold integers from 0 as classes, but {format_rows(wrong)} hold(s) "
            f"{y[wrong][0]}; for other numbers set task: regression"
        )
    return y.astype(np.int32)


def format_rows(wrong: Any, first: int = 0) -> str:
    """Format a mask of rows as ``row(s) 3, 8, ... (12 in all)``, counted from ``first``."""
    numbers = np.flatnonzero(wrong)
    listed = ", ".join(str(number + first) for number in numbers[:_MAX_LISTED])
    more = f", ... ({len(numbers)} in all)" if len(numbers) > _MAX_LISTED else ""
    return f"row(s) {listed}{more}"


def make_optimizer(config: Config) -> Any:
    """Return the optimizer of a config.

    Config values read: ``optimizer`` (any of Keras' own, such as sgd, adamw or lion; default adam),
    ``learning_rate`` (1e-3), ``momentum`` (0; sgd and rmsprop only), ``weight_decay`` and
    ``clipnorm`` (Keras' defaults).

    Raises:
        ValueError: Keras has no such optimizer, or not with these values.
    """
    import keras

    name = config.get("optimizer", "adam")
    optional = ["weight_decay", "clipnorm", *(["momentum"] if name in ("sgd", "rmsprop") else [])]
    arguments = {each: float(config[each]) for each in optional if config.get(each)}
    arguments["learning_rate"] = float(config.get("learning_rate", 1e-3))
    return keras.optimizers.get({"class_name": name, "config": arguments})


def dense_layers(features: Any, config: Config) -> Any:
    """Apply hidden layers to features of shape ``[rows, features]``.

    Config values read: ``num_layers`` (default 1), ``width`` (128) and ``dropout`` (0).
    """
    import keras

    for _ in range(int(config.get("num_layers", 1))):
        features = keras.layers.Dense(int(config.get("width", 128)), activation="relu")(features)
        features = keras.layers.Dropout(float(config.get("dropout", 0.0)))(features)
    return features


def convolutions(images: Any, config: Config) -> Any:
    """Apply convolution blocks and a dense layer to images ``[rows, height, width, channels]``.

    Config values read: ``num_blocks`` (by default at most 4, leaving about 4 x 4 positions),
    ``filters`` of the first block (16), doubled in each further one, ``batch_norm`` (False),
    ``width`` (64) and ``dropout`` (0).
    """
    import keras

    side = min(images.shape[1:3])
    default = max(1, min(_MAX_BLOCKS, int(math.log2(max(2, side))) - 1))
    for block in range(int(config.get("num_blocks", default))):
        num_filters = int(config.get("filters", 16)) * 2**block
        images = keras.layers.Conv2D(num_filters, 3, padding="same")(images)
        if config.get("batch_norm", False):
            images = keras.layers.BatchNormalization()(images)
        images = keras.layers.Activation("relu")(images)
        images = keras.layers.MaxPooling2D(padding="same")(images)
    if np.prod(images.shape[1:3]) <= _FLATTENED:
        features = keras.layers.Flatten()(images)
    else:
        features = keras.layers.GlobalAveragePooling2D()(images)
    features = keras.layers.Dense(int(config.get("width", 64)), activation="relu")(features)
    return keras.layers.Dropout(float(config.get("dropout", 0.0)))(features)


def model_for_shape(
    shape: tuple[int, ...],
    dtype: str,
    head: Head,
    config: Config,
    augmentation: Sequence[Any] = (),
) -> Any:
    """Return a compiled model for one input: convolutional for images, dense for all else.

    Rows of three axes are images ``[height, width, channels]``, those of two are grey images
    ``[height, width]``. Bytes (uint8) are scaled to [0, 1] inside the model, after the layers of
    an augmentation.
    """
    import keras

    inputs = features = keras.Input(shape, dtype=dtype)
    for layer in augmentation:
        features = layer(features)
    features = keras.layers.Rescaling(1 / 255 if dtype == "uint8" else 1.0)(features)
    if len(shape) == 2:
        features = keras.layers.Reshape((*shape, 1))(features)
    if len(shape) in (2, 3):
        features = convolutions(features, config)
    else:
        features = dense_layers(keras.layers.Flatten()(features), config)
    return head.compiled(inputs, features, config)
