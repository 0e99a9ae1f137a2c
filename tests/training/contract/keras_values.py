"""Arguments without which classes of Keras do not train, for the walk over them."""

from collections.abc import Mapping
from typing import Any

import keras

_layers = keras.layers

NOT_BUILT: Mapping[str, str] = {
    "layers.FlaxLayer": "needs JAX",
    "layers.JaxLayer": "needs JAX",
    "layers.TorchModuleWrapper": "needs PyTorch",
    "layers.TFSMLayer": "needs a saved model in a file",
    "layers.InputLayer": "is not used directly: keras.Input creates it",
    "layers.MaxNumBoundingBoxes": "takes boxes, which no loss accepts",
    "layers.RandomCrop": "crops only in training, so no model with weights after it validates",
    "layers.Layer": "abstract",
    "layers.Wrapper": "abstract",
    "losses.Loss": "abstract",
    "metrics.Metric": "abstract",
    "metrics.Mean": "takes no labels",
    "metrics.Sum": "takes no labels",
    "regularizers.Regularizer": "abstract",
    "constraints.Constraint": "abstract",
    "initializers.Initializer": "abstract",
    "optimizers.Optimizer": "abstract",
    "schedules.LearningRateSchedule": "abstract",
}
"""Public classes that are excluded, with the reason."""


NOT_BY_FIT: Mapping[str, str] = {
    "layers.AugMix": "draws from Python's generator at each trace",
    # Keras 3.15: its momentum starts from the weights only if it is built before fit is called.
    "optimizers.ScheduleFreeAdamW": "fit begins by replacing the weights with its own first update",
}
"""Classes that are not compared with ``fit``, with the reason."""


def _error(y: Any, p: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y - p), -1)


def _twice(x: Any) -> Any:
    return 2.0 * x


def _optimizer_map() -> Any:
    of_biases = {".*bias": keras.optimizers.SGD(0.1)}
    return keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01), of_biases)


WORDS = ["a", "b", "c", "d", "e"]

REQUIRED: dict[str, Any] = {
    "activation": "tanh",
    "axes": 1,
    "boundaries": [2, 4],
    "cell": lambda: _layers.LSTMCell(3),
    "cells": lambda: [_layers.LSTMCell(3), _layers.GRUCell(3)],
    "decay_rate": 0.9,
    "decay_steps": 5,
    "dims": (2, 1),
    "equation": "ab,bc->ac",
    "factor": 0.3,
    "filters": 4,
    "first_decay_steps": 3,
    "fn": lambda: _error,
    "function": lambda: _twice,
    "head_dim": 2,
    "height": 4,
    "height_factor": 0.2,
    "initial_learning_rate": 0.1,
    "inner_optimizer": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "input_dim": 12,
    "kernel_size": 2,
    "key_dim": 2,
    "layer": lambda: _layers.Dense(4),
    "layers": lambda: [_layers.Dense(4), _layers.Dropout(0.3)],
    "learning_rate": 0.05,
    "n": 2,
    "num_bins": 4,
    "num_classes": 3,
    "num_heads": 2,
    "num_key_value_heads": 1,
    "num_query_heads": 2,
    "optimizer_map": _optimizer_map,
    "output_dim": 3,
    "output_shape": 4,
    "output_size": 2,
    "pool_size": 2,
    "precision": 0.5,
    "rate": 0.3,
    "recall": 0.5,
    "scale": 0.5,
    "sensitivity": 0.5,
    "specificity": 0.5,
    "stddev": 0.3,
    "target_class_ids": (0, 1),
    "target_shape": (2, 3),
    "units": 4,
    "values": [0.1, 0.05, 0.01],
    "width": 4,
    "width_factor": 0.2,
}
"""Values of required arguments; a function stands for its return value, made anew each time."""


ALONGSIDE: dict[str, dict[str, Any]] = {
    "ema_momentum": {"use_ema": True},
    "ema_overwrite_frequency": {"use_ema": True},
    "mean": {"variance": 0.5},
    "nesterov": {"momentum": 0.9},
    "renorm_momentum": {"renorm": True},
    "variance": {"mean": 0.2},
    "warmup_steps": {"warmup_target": 0.3},
    "warmup_target": {"warmup_steps": 3},
    "zero_output_for_mask": {"return_sequences": True},
}
"""Companion arguments without which an argument has no effect."""


ORDINARY: dict[str, dict[str, Any]] = {
    "Bidirectional": {"layer": lambda: _layers.LSTM(3)},
    "RandomPosterization": {"factor": 4},
    "RandomErasing": {"scale": (0.1, 0.5)},
    "AUC": {"num_thresholds": 20},
    "CategoryEncoding": {"num_tokens": 12},
    "Discretization": {"bin_boundaries": [-1.0, 0.0, 1.0]},
    "GroupNormalization": {"groups": 2},
    "IoU": {"sparse_y_pred": False},
    "MeanIoU": {"sparse_y_pred": False},
    "IntegerLookup": {"vocabulary": [1, 2, 3]},
    "LossScaleOptimizer": {"initial_scale": 16.0},
    "MelSpectrogram": {
        "fft_length": 16,
        "sequence_stride": 8,
        "num_mel_bins": 4,
    },
    "STFTSpectrogram": {"frame_length": 4},
    "SparseTopKCategoricalAccuracy": {"k": 1},
    "StringLookup": {"vocabulary": WORDS[:3]},
    "TextVectorization": {"vocabulary": WORDS[:3], "output_sequence_length": 3},
    "TopKCategoricalAccuracy": {"k": 1},
    "ContrastLimitedAdaptiveHistogramEqualization": {"tile_grid_size": (2, 2)},
}
"""Arguments without which a class fails or has no effect."""
