"""Frozen layers at the beginning of a model, whose outputs are the same in every epoch."""

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.training.build import layers_in
from tune_tf.training.input.reader import rows_between
from tune_tf.training.keras_internals import (
    LayerCall,
    calls_in_order,
    has_layer_graph,
    keras_mask,
    layer_graph,
    replace_calls,
    set_keras_mask,
)
from tune_tf.training.replicas.row_means import replaces_method

LEAST_SHARE = 0.3
"""Least share of an epoch's operations that the outputs have to save."""

_BACKWARD = 2
"""Operations of the backward pass through trained layers, over those of the forward pass."""

_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")
_RANDOM_OR_STATEFUL = (
    keras.layers.Lambda,
    keras.layers.SpectralNormalization,
    keras.layers.TFSMLayer,
    keras.layers.TorchModuleWrapper,
)


class NotSharedError(Exception):
    """Reason why the outputs of a model's first layers are not shared."""


@dataclass(frozen=True, eq=False)
class FrozenLayers:
    """First layers of a model, which neither train nor draw random numbers, up to a cut.

    Args:
        model: The whole model, sequential or functional.
        frozen: Calls before the cut, in order.
        rest: Calls after it, in order.
        tensors: Symbolic tensors of the cut.
    """

    model: keras.Model
    frozen: tuple[LayerCall, ...]
    rest: tuple[LayerCall, ...]
    tensors: tuple[Any, ...]

    @property
    def weights(self) -> list[Any]:
        """Variables that the outputs depend on: no states of generators, which draw nothing."""
        operations = dict.fromkeys(call.operation for call in self.frozen)
        return [weight for each in operations for weight in getattr(each, "weights", ())]

    @property
    def name(self) -> str:
        """Names of the layers whose outputs are shared."""
        made = [
            call.operation.name
            for call in self.frozen
            if any(each is tensor for each in call.outputs for tensor in self.tensors)
        ]
        return ", ".join(made)

    @functools.cached_property
    def _first(self) -> keras.Model:
        return keras.Model(layer_graph(self.model).input, list(self.tensors))

    def outputs(self, x: Any, *, training: bool = False) -> list[Any]:
        """Return the outputs at the cut for some rows, and after them their masks, if any."""
        outputs = keras.tree.flatten(self._first(x, training=training))
        return outputs + [mask for each in outputs if (mask := keras_mask(each)) is not None]

    def skipped(self, has_mask: Sequence[bool]) -> AbstractContextManager[None]:
        """Return the context in which the model takes :meth:`outputs` in place of rows.

        Args:
            has_mask: Whether each of the outputs has a mask.
        """
        return replace_calls({self.model: partial(self._run_rest, has_mask)})

    def _run_rest(
        self, has_mask: Sequence[bool], outputs: Any, training: Any = None, **_: Any
    ) -> Any:
        outputs = keras.tree.flatten(outputs)
        masks = iter(outputs[len(self.tensors) :])
        for tensor, masked in zip(outputs, has_mask, strict=False):
            if masked:
                set_keras_mask(tensor, next(masks))
        values = dict(zip(map(id, self.tensors), outputs, strict=False))
        for call in self.rest:
            call.run(values, training)
        model = self.model
        wanted = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
        return keras.tree.map_structure(lambda tensor: values[id(tensor)], wanted)


def find_frozen_layers(model: keras.Model, max_row_bytes: float) -> FrozenLayers:
    """Return the frozen layers at the beginning of a model.

    Raises:
        NotSharedError: There are none, they save too little, or a row of their outputs takes more
            than ``max_row_bytes``.
    """
    for name in _METHODS:
        if replaces_method(model, name):
            raise NotSharedError(f"the model replaces {name}, which may use the rows")
    if not has_layer_graph(model):
        raise NotSharedError(f"{type(model).__name__} calls its layers in custom code")
    known = {id(tensor) for tensor in layer_graph(model).inputs}
    frozen, rest, reason = list[LayerCall](), list[LayerCall](), ""
    for call in _calls(model):
        depends = any(id(tensor) not in known for tensor in call.inputs)
        obstacle = "" if depends else _obstacle(call)
        reason = reason or obstacle
        if depends or obstacle:
            rest.append(call)
        else:
            frozen.append(call)
            known |= set(map(id, call.outputs))
    saved, left = (sum(map(_operations, each)) for each in (frozen, rest))
    share = saved / (saved + (1 + _BACKWARD) * left) if saved else 0.0
    if share < LEAST_SHARE:
        raise NotSharedError(f"they are only {share:.0%} of an epoch's operations; {reason}")
    used = [*(tensor for call in rest for tensor in call.inputs), *model.outputs]
    tensors = {id(tensor): tensor for tensor in used if id(tensor) in known}
    if sum(map(_row_bytes, tensors.values())) > max_row_bytes:
        raise NotSharedError("the outputs of the frozen layers do not fit into memory")
    return FrozenLayers(model, tuple(frozen), tuple(rest), tuple(tensors.values()))


def has_frozen_layers(model: keras.Model) -> bool:
    """Return whether a layer with weights is set to train none of them."""
    return any(layer.weights and not layer.trainable for layer in layers_in(model))


def _calls(model: keras.Model) -> list[LayerCall]:
    """Return the calls of a model in order, without its inputs."""
    kind = keras.layers.InputLayer
    return [call for call in calls_in_order(model) if not isinstance(call.operation, kind)]


def _row_bytes(tensor: Any) -> float:
    """Return the bytes of a row; infinity if they are unknown."""
    shape = tensor.shape[1:]
    if None in shape or tensor.sparse or tensor.dtype == "string":
        return math.inf
    return math.prod(shape) * tf.as_dtype(tensor.dtype).size


def _is_graph(operation: Any) -> bool:
    return isinstance(operation, keras.Model) and has_layer_graph(operation)


def _obstacle(call: LayerCall) -> str:
    """Return why the outputs of a call may change between epochs; empty if they do not."""
    operation = call.operation
    arguments = keras.tree.flatten((call.args, call.kwargs))
    if any(isinstance(each, keras.Variable | tf.Variable) for each in arguments):
        return f"{operation.name} gets a variable"
    if not isinstance(operation, keras.Layer):
        is_known = type(operation).__module__.startswith("keras.src.ops.")
        return "" if is_known else f"{operation.name} is a custom operation"
    if _is_graph(operation):
        inner = (_obstacle(each) for each in _calls(operation))
        return next(filter(None, inner), "")
    if operation.trainable_variables:
        return f"{operation.name} is trained"
    return next(filter(None, map(_obstacle_in, layers_in(operation))), "")


def _obstacle_in(layer: keras.Layer) -> str:
    name = layer.name
    if not type(layer).__module__.startswith(("keras.src.layers.", "keras.src.models.")):
        return f"{name} is a custom layer"
    rates = [getattr(layer, rate, 1) for rate in ("dropout", "recurrent_dropout")]
    draws = any(isinstance(each, keras.random.SeedGenerator) for each in vars(layer).values())
    if draws and any(rates):
        return f"{name} draws random numbers"
    if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
        return f"{name} collects statistics"
    if isinstance(layer, _RANDOM_OR_STATEFUL) or getattr(layer, "stateful", False):
        return f"{name} may keep state"
    if layer.activity_regularizer is not None:
        return f"{name} adds to the loss"
    return f"{name} is quantized" if getattr(layer, "quantization_mode", None) else ""


def _operations(call: LayerCall) -> float:
    """Estimate the operations of a call for a row: its weights, at each position of its output."""
    operation = call.operation
    if _is_graph(operation):
        return sum(map(_operations, _calls(operation)))
    if isinstance(operation, keras.layers.Embedding):
        return 0
    sizes = [math.prod(each.shape) for each in getattr(operation, "weights", ()) if each.ndim > 1]
    return sum(sizes) * math.prod(size or 1 for size in call.outputs[0].shape[1:-1])


def check_outputs(layers: FrozenLayers, x: Any) -> list[bool]:
    """Return whether each output at the cut has a mask, after a check on a few rows.

    Raises:
        NotSharedError: The outputs depend on training or on other rows.
    """
    outputs = layers.outputs(x, training=True)
    numbers = range(len(keras.tree.flatten(x)[0]))
    single = [layers.outputs(rows_between(x, i, i + 1)) for i in numbers]
    for output, *parts in zip(outputs, *single, strict=True):
        if not _equal(output, tf.concat(parts, 0)):
            raise NotSharedError(
                "the outputs of the frozen layers depend on other rows of the batch, or differ in "
                "training"
            )
    return [keras_mask(each) is not None for each in outputs[: len(layers.tensors)]]


def _equal(one: Any, other: Any) -> bool:
    """Return whether tensors are equal but for rounding, which differs between calls on a GPU."""
    if not one.dtype.is_floating:
        return bool(np.array_equal(one, other))
    tolerance = 1e-4 if one.dtype.size > 2 else 3e-2
    first, second = (np.asarray(each, np.float64) for each in (one, other))
    return first.shape == second.shape and np.allclose(
        first, second, tolerance, tolerance * np.max(np.abs(first), initial=0), equal_nan=True
    )
