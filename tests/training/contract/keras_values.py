"""Argument values of Keras classes, for the walk over them.

A function without arguments stands for its return value, created anew for each model.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

_layers, _schedules = keras.layers, keras.optimizers.schedules

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
    **{
        f"layers.{attention}.bias_{argument}": "the gradient of a key's bias is pure rounding error"
        for attention in ("GroupedQueryAttention", "MultiHeadAttention")
        for argument in ("constraint", "regularizer")
    },
    # Keras 3.15: its momentum starts from the weights only if it is built before fit is called.
    "optimizers.ScheduleFreeAdamW": "fit begins by replacing the weights with its own first update",
}
"""Classes and arguments that are not compared with ``fit``, with the reason."""


def _dense(units: int = 4) -> Any:
    return _layers.Dense(units)


def _twice(x: Any) -> Any:
    return 2.0 * x


def _halved(x: Any) -> Any:
    return 0.5 * x


def _mapped(of_biases: Any, default: Any) -> Any:
    return keras.optimizers.OptimizerMap(default, {".*bias": of_biases})


def _halved_error(y: Any, p: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - p), -1) / 2


def _error(y: Any, p: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y - p), -1)


def names_of_functions(module: Any) -> list[str]:
    """Return the names of the functions of a Keras module."""
    other = ("deserialize", "get", "serialize")
    found = {n for n, f in vars(module).items() if inspect.isfunction(f) and n not in other}
    return sorted(found)


_FACTORS = [0.2, 0.6]
WORDS = ["a", "b", "c", "d", "e"]

BY_NAME: dict[str, list[Any]] = {
    "activation": ["tanh", "relu", "gelu"],
    "adjustment": [0.1],
    "arguments": [{}],
    "attention_axes": [1],
    "autocast": [False],
    "average": ["micro", "macro", "weighted"],
    "axes": [1, 2, -1],
    "axis": [-1, 1, 0, 2, (1, 2), None],
    "backward_layer": [
        lambda: _layers.GRU(3, go_backwards=True),
        lambda: _layers.LSTM(3, go_backwards=True, activation="relu"),
    ],
    "bias_axes": ["c", "d"],
    "bin_boundaries": [[-1.0, 0.0, 1.0], [-0.5, 0.5, 0.7]],
    "boundaries": [[2, 4], [1, 3]],
    "brightness_factor": _FACTORS,
    "cell": [
        lambda: _layers.LSTMCell(3),
        lambda: _layers.GRUCell(3),
        lambda: _layers.LSTMCell(3, activation="relu"),
    ],
    "cells": [
        lambda: [_layers.LSTMCell(3), _layers.GRUCell(3)],
        lambda: [_layers.LSTMCell(3), _layers.GRUCell(3, reset_after=False)],
    ],
    "class_aggregation": ["variance_weighted_average", None],
    "class_id": [1, 2],
    "clipnorm": [0.01, 0.1],
    "clipvalue": [0.001, 0.01],
    "contrast_factor": _FACTORS,
    "cropping": [0, (1, 0), ((0, 1), (1, 0)), ((0, 1), (1, 0), (1, 1))],
    "curve": ["PR"],
    "data_format": ["channels_last", "channels_first"],
    "decay_rate": [0.9, 0.5],
    "decay_steps": [5, 7],
    "dilation_rate": [1, 2, (1, 2), (2, 1), (1, 1, 2)],
    "dims": [(2, 1), (1, 2)],
    "distribution": ["untruncated_normal", "uniform"],
    "dtype": ["float64", "bfloat16"],
    "ema_overwrite_frequency": [2, 3],
    "encoding": ["utf-16-be"],
    "equation": ["ab,bc->ac", "ab,cb->ac"],
    "exclude_layers": [["first"], ["last"]],
    "factor": [0.3, 0.6, 0.05],
    "fill_mode": ["constant", "reflect", "wrap", "nearest"],
    "fill_value": [0.3, 0.6],
    "filters": [4, 6],
    "first_decay_steps": [3, 2],
    "flash_attention": [False],
    "fn": [lambda: _error, lambda: _halved_error],
    "frame_length": [3, 4],
    "frame_step": [2, 1],
    "function": [lambda: _twice, lambda: _halved],
    "global_clipnorm": [0.01, 0.1],
    "gradient_accumulation_steps": [2, 3],
    "groups": [1, 2, 4],
    "head_dim": [2, 4],
    "height": [4, 3],
    "height_factor": _FACTORS,
    "hue_factor": _FACTORS,
    "idf_weights": [[0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 4.0]],
    "ignore_class": [0, 1, -1],
    "initial_learning_rate": [0.1, 0.02],
    "initial_scale": [16.0, 8.0],
    "dynamic_growth_steps": [2, 3],
    "inner_optimizer": [
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.SGD(0.1, momentum=0.5),
        lambda: keras.optimizers.Adam(0.01),
    ],
    "input_axes": [0, 1],
    "input_dim": [12, 14],
    "interpolation": ["nearest", "bilinear", "bicubic", "lanczos3", "area"],
    "k": [1, 2],
    "kernel_size": [2, 3, 1],
    "key_dim": [2, 3],
    "label_weights": [[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]],
    "layer": [
        _dense,
        lambda: _layers.Dense(4, activation="relu"),
        lambda: _layers.Dense(4, use_bias=False),
    ],
    "layers": [lambda: [_dense(), _layers.Dropout(0.3)], lambda: [_dense(), _layers.ReLU()]],
    "learning_rate": [
        0.05,
        0.2,
        *[lambda rate=rate: _schedules.ExponentialDecay(0.1, 3, rate) for rate in (0.5, 0.9)],
    ],
    "logit_soft_cap": [1.0, 2.0],
    "lora_alpha": [1.0, 3.0],
    "lora_rank": [2, 1],
    "loss_scale_factor": [2.0, 4.0],
    "mask": [None],
    "mask_token": [3, 4, "a", "b"],
    "mask_value": [1, 2, 0.5],
    "max_freq": [6000.0, 7000.0],
    "max_tokens": [8, 9],
    "max_value": [0.3, 0.6],
    "mean": [0.2, 0.5],
    "merge_mode": ["sum", "mul", "ave", None],
    "mode": ["horizontal", "vertical", "fan_out", "fan_avg", "columns", "magnitude", "real"],
    "multi_label": [True],
    "muon_b": [-4.7, -4.8],
    "n": [2, 3],
    "name": ["another", "a_third"],
    "ngrams": [2, 3],
    "noise_shape": [(None, 1), (None, 1, 1), (1, None)],
    "num_bins": [4, 5],
    "num_classes": [3, 4],
    "num_heads": [2, 1],
    "num_key_value_heads": [1, 2],
    "num_labels": [3],
    "num_query_heads": [2, 4],
    "num_tokens": [12, 14],
    "oov_method": ["farmhash"],
    "optimizer_map": [
        lambda: _mapped(keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01)),
        lambda: _mapped(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1)),
        lambda: _mapped(keras.optimizers.SGD(0.2), keras.optimizers.Adam(0.02)),
    ],
    "output_axes": [1, 0],
    "output_dim": [3, 4],
    "output_mode": ["one_hot", "int", "multi_hot", "count", "tf_idf"],
    "output_padding": [0, 1, (0, 1)],
    "output_sequence_length": [3, 4],
    "output_shape": [4, 3, (4,), (5,), (5, 3)],
    "output_size": [2, 3],
    "padding": ["same", "causal", (1, 0), ((1, 0), (0, 1)), ((1, 0), (0, 1), (1, 1))],
    "pool_size": [2, 3],
    "precision": [0.5, 0.7],
    "rate": [0.3, 0.6],
    "recall": [0.5, 0.7],
    "recurrent_activation": ["tanh", "relu", "hard_sigmoid"],
    "reduction": ["sum", "mean", "mean_with_sample_weight", None],
    "renorm_clipping": [
        lambda: {"rmax": 1.5, "rmin": 0.5, "dmax": 2.0},
        lambda: {"rmax": 1.1, "rmin": 0.9, "dmax": 0.1},
    ],
    "reverse_dtype": ["float64", "bfloat16"],
    "salt": [1, 2],
    "saturation_factor": _FACTORS,
    "scale": [0.5, 2.0, False, (0.1, 0.5)],
    "scaling": ["spectrum"],
    "score_mode": ["concat"],
    "seed": [1, 2],
    "sensitivity": [0.5, 0.7],
    "sequence_length": [12, 14],
    "shared_axes": [(1,), (2,)],
    "side": ["imag"],
    "size": [1, 3],
    "sliding_window": [1, 2],
    "specificity": [0.5, 0.7],
    "split": ["character"],
    "standardize": ["lower", "strip_punctuation", None],
    "stddev": [0.3, 0.6],
    "strides": [1, 2, (2, 1), (1, 2)],
    "summation_method": ["minoring", "majoring"],
    "target_class_ids": [(0, 1), (1,), (0,)],
    "target_shape": [(2, 3), (3, 2)],
    "threshold": [0.2, 0.4],
    "thresholds": [0.2, 0.4, [0.2, 0.4]],
    "tile_grid_size": [(2, 2), (3, 3)],
    "top_k": [1, 2],
    "trainable": [False],
    "units": [4, 5],
    "use_cudnn": [False, True],
    "value_dim": [2, 3],
    "value_range": [(0, 1), (-1, 1)],
    "values": [[0.1, 0.05, 0.01], [0.2, 0.01, 0.1]],
    "variance": [0.5, 2.0],
    "vocabulary": [[1, 2, 3], [3, 2, 1], WORDS[:3], WORDS[2:]],
    "vocabulary_dtype": ["int32"],
    "warmup_target": [0.2, 0.4],
    "weight_decay": [0.1, 0.3],
    "weights": [lambda: [np.full((12, 3), 0.1)], lambda: [np.full((12, 3), 0.2)]],
    "width": [4, 3],
    "width_factor": _FACTORS,
    "window": ["hamming", None],
}
"""Values by argument name; the first is the ordinary value of a required argument."""

BY_SUFFIX: dict[str, list[Any]] = {
    "_constraint": [
        "unit_norm",
        *[lambda limit=limit: keras.constraints.MaxNorm(limit) for limit in (0.1, 0.3)],
    ],
    "_factor": _FACTORS,
    "_initializer": [
        "ones",
        *[lambda scale=scale: keras.initializers.RandomNormal(0, scale) for scale in (0.1, 0.3)],
    ],
    "_regularizer": [
        "l2",
        *[lambda rate=rate: keras.regularizers.L1(rate) for rate in (0.1, 0.3)],
    ],
}
"""Values by the suffix of an argument's name."""

OF_CLASS: dict[str, dict[str, list[Any]]] = {
    "Activation": {"activation": names_of_functions(keras.activations)},
    "Bidirectional": {
        "layer": [lambda: _layers.LSTM(3), lambda: _layers.GRU(3), lambda: _layers.LSTM(4)],
        "weights": [None],
    },
    "Conv3D": {"strides": [2, (2, 1, 1)], "dilation_rate": [2, (1, 2, 1)]},
    "EinsumDense": {"output_shape": [4, 5]},
    "Identity": {"gain": [0.5, 2.0]},
    "IntegerLookup": {"vocabulary": [[1, 2, 3], [3, 2, 1]]},
    "StringLookup": {"vocabulary": [WORDS[:3], WORDS[2:]]},
    "TextVectorization": {"vocabulary": [WORDS[:3], WORDS[2:]]},
    "Rescaling": {"scale": [0.5, 2.0, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0)]},
    "Resizing": {"interpolation": ["nearest", "bicubic", "area"]},
    "STFT": {"window": ["hamming"]},
    "RandomPosterization": {"factor": [4, 2]},
    "RandomElasticTransform": {"scale": [0.5, 2.0]},
    "RandomErasing": {"scale": [(0.1, 0.5), (0.3, 0.4)]},
    "RandomPerspective": {"scale": [0.5, 0.9]},
    "Hashing": {"mask_value": [1, 2]},
}
"""Values by class and argument name."""


ALONGSIDE: dict[str, dict[str, Any]] = {
    "ema_momentum": {"use_ema": True},
    "ema_overwrite_frequency": {"use_ema": True},
    "idf_weights": {"output_mode": "tf_idf"},
    "lora_alpha": {"lora_rank": 2},
    "multi_label": {"num_labels": 3},
    "num_labels": {"multi_label": True},
    "label_weights": {"num_labels": 3, "multi_label": True},
    "mean": {"variance": 0.5},
    "nesterov": {"momentum": 0.9},
    "pad_to_max_tokens": {"max_tokens": 9, "output_mode": "multi_hot"},
    "renorm_clipping": {"renorm": True},
    "renorm_momentum": {"renorm": True},
    "salt": {"num_oov_indices": 3},
    "variance": {"mean": 0.2},
    "warmup_steps": {"warmup_target": 0.3},
    "warmup_target": {"warmup_steps": 3},
    "zero_output_for_mask": {"return_sequences": True},
}
"""Companion arguments without which an argument has no effect."""


ORDINARY: dict[str, dict[str, Any]] = {
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
"""Optional arguments without which a class fails or has no effect."""


UNVARIED: Mapping[str, str] = {
    "dtype": "a penalty of another type cannot be added to the loss",
    "fft_length": "none is both longer than the frames and short enough for the rows",
    "gptq_unpacked_column_size": "needs a model that is quantized",
    "fill_mode": "needs a resizing that leaves a border",
    "idf_weights": "needs as many as the words, and an output mode",
    "invert": "its output are words",
    "mask": "is a tensor, or a function of other masks",
    "mask_token": "needs to be in the words",
    "num_bins": "excludes the boundaries",
    "oov_token": "shows in inverted look-ups only",
    "output_mode": "excludes a length of the output",
    "output_shape": "is for other frameworks",
    "pad_to_max_tokens": "excludes a length of the output",
    "quantization_config": "needs a model that is quantized",
    "ragged": "its output is no tensor that a dense layer takes",
    "salt": "excludes a number of places for unknown words",
    "sparse": "its output is no tensor that a dense layer takes",
    "sparse_y_pred": "needs classes as predictions",
    "stateful": "needs a batch size in the input; a finding has one",
    "trainable": "some layers do not take it",
    "vocabulary_dtype": "only int64 is allowed",
    "weights": "only layers that are given some take it",
}
"""Arguments for which no other value trains in some classes."""
