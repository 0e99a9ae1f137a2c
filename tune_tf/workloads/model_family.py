"""Layers and models shared by workloads on users' own data."""

import math
from typing import Any

import numpy as np

from tune_tf.workload import Config
from tune_tf.workloads.head import Head

_MAX_BLOCKS = 4
_FLATTENED = 16  # more positions are averaged: flattened, they would make a huge dense layer


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
    fitting = max(1, min(_MAX_BLOCKS, int(math.log2(max(2, side))) - 1))
    for block in range(int(config.get("num_blocks", fitting))):
        count = int(config.get("filters", 16)) * 2**block
        images = keras.layers.Conv2D(count, 3, padding="same")(images)
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


def model_for_shape(shape: tuple[int, ...], dtype: str, head: Head, config: Config) -> Any:
    """Return a compiled model for one input: convolutional for images, dense for all else.

    Rows of three axes are images ``[height, width, channels]``, those of two are grey images
    ``[height, width]``. Bytes (uint8) are scaled to [0, 1] inside the model.
    """
    import keras

    inputs = keras.Input(shape, dtype=dtype)
    features = keras.layers.Rescaling(1 / 255 if dtype == "uint8" else 1.0)(inputs)
    if len(shape) == 2:
        features = keras.layers.Reshape((*shape, 1))(features)
    if len(shape) in (2, 3):
        features = convolutions(features, config)
    else:
        if len(shape) != 1:
            features = keras.layers.Flatten()(features)
        features = dense_layers(features, config)
    return head.compiled(inputs, features, config)
