"""Frozen layers at the beginning of a model, whose outputs are the same in every epoch."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tune_tf.formatting import counted
from tune_tf.training.core.build import layers_in
from tune_tf.training.core.scalars import scalars_of
from tune_tf.training.core.seeds import preserve_global_rng
from tune_tf.training.core.structure import Structure, structure_of
from tune_tf.training.input.reader import rows_between
from tune_tf.training.keras_internals import (
    LayerCall,
    calls_in_order,
    has_layer_graph,
    keras_mask,
    layer_graph,
    replace_calls,
    set_keras_mask,
    standard_inputs,
)
from tune_tf.training.row_means import replaces_method

LEAST_SHARE = 0.3
"""Least share of an epoch's operations that the outputs have to save."""

_NEARLY_ALL = 0.95
_BACKWARD = 2
"""Operations of the backward pass through trained layers, over those of the forward pass."""

_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")
_RANDOM_OR_STATEFUL = (
    keras.layers.Lambda,
    keras.layers.SpectralNormalization,
    keras.layers.TFSMLayer,
    keras.layers.TorchModuleWrapper,
)
_RECURRENT = (keras.layers.RNN, keras.layers.Bidirectional)


class NotSharedError(Exception):
    """Reason why the outputs of a model's first layers are not shared."""


class _Level(NamedTuple):
    """Cut of a model, or of a model nested in it.

    Args:
        model: Sequential or functional model.
        frozen: Calls before the cut, in order.
        rest: Calls after it, in order.
        tensors: Symbolic tensors of the cut; they are the inputs of ``nested`` if that is cut, too.
        nested: Call of the nested model that contains the cut of the next level.
    """

    model: keras.Model
    frozen: tuple[LayerCall, ...]
    rest: tuple[LayerCall, ...]
    tensors: tuple[Any, ...]
    nested: LayerCall | None = None


class _Cut(NamedTuple):
    levels: tuple[_Level, ...]
    saved: float  # operations a row
    row_bytes: int


@dataclass(frozen=True, eq=False)
class FrozenLayers:
    """First layers of a model, which neither train nor draw random numbers, up to a cut.

    Args:
        levels: The cut: that of the model, then those of models nested in each other.
        row_bytes: Bytes of the outputs of a row, without masks.
        share: Share of an epoch's operations that the frozen layers take, 0 to 1.
    """

    levels: Sequence[_Level]
    row_bytes: int
    share: float
    _thread: threading.local = field(default_factory=threading.local)

    @property
    def model(self) -> keras.Model:
        """The whole model."""
        return self.levels[0].model

    @property
    def layers(self) -> list[keras.Layer]:
        """The frozen layers; a nested model counts as one."""
        operations = (call.operation for level in self.levels for call in level.frozen)
        return [each for each in operations if isinstance(each, keras.Layer)]

    def __str__(self) -> str:
        """Return what the outputs save, for a report."""
        leaves = {
            id(leaf)
            for layer in self.layers
            for leaf in layers_in(layer)
            if not isinstance(leaf, keras.Model | keras.layers.InputLayer)
        }
        return (
            f"{counted(len(leaves), 'layer')} up to {self.name}; "
            f"{math.floor(100 * self.share)}% of an epoch's operations are saved"
        )

    @property
    def variables(self) -> list[Any]:
        """Variables of the frozen layers, in order."""
        unique = {id(each): each for layer in self.layers for each in layer.variables}
        return list(unique.values())

    @property
    def weights(self) -> list[Any]:
        """Variables that the outputs depend on: not the states of generators, which draw nothing.

        Such as that of a recurrent layer without dropout, which follows the trial's seed.
        """
        inner = (each for layer in self.layers for each in layers_in(layer))
        states = {id(each.state) for layer in inner for each in _generators(layer)}
        return [each for each in self.variables if id(each) not in states]

    @property
    def structure(self) -> Structure:
        """Structure of the layers and of how they are connected, without values of variables."""
        calls = [call for level in self.levels for call in level.frozen]
        tensors = [level.tensors for level in self.levels]
        scalars = scalars_of(self.model)
        return structure_of([*map(tuple, calls), *tensors], scalars, with_tables=True)

    @property
    def name(self) -> str:
        """Names of the layers whose outputs are shared."""
        tensors = self.levels[-1].tensors
        made = [
            call.operation.name
            for call in self.levels[-1].frozen
            if any(each is tensor for each in call.outputs for tensor in tensors)
        ]
        return ", ".join(made)

    def outputs(self, x: Any, *, training: bool = False) -> list[Any]:
        """Return the outputs at the cut for some rows, and after them their masks, if any."""
        with self._replaced(self._run_frozen):
            outputs: list[Any] = self.model(x, training=training)
        return outputs + [mask for each in outputs if (mask := keras_mask(each)) is not None]

    @contextlib.contextmanager
    def skipped(self, has_mask: Sequence[bool]) -> Iterator[None]:
        """Let the model take the outputs at the cut, as of :meth:`outputs`, in place of rows.

        Args:
            has_mask: Whether each of the outputs has a mask.
        """
        with self._replaced(partial(self._run_rest, tuple(has_mask))):
            yield

    def _replaced(self, run: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
        return replace_calls(
            {level.model: partial(run, number) for number, level in enumerate(self.levels)}
        )

    def _run_frozen(self, number: int, inputs: Any, training: Any = None, **_: Any) -> Any:
        level = self.levels[number]
        graph = layer_graph(level.model)
        values = dict(zip(map(id, graph.inputs), standard_inputs(level.model, inputs), strict=True))
        _run(level.frozen, values, training)
        if level.nested is not None:
            return level.nested.run(values, training)
        return [values[id(tensor)] for tensor in level.tensors]

    def _run_rest(
        self, has_mask: tuple[bool, ...], number: int, inputs: Any, training: Any = None, **_: Any
    ) -> Any:
        level = self.levels[number]
        if number == 0:
            self._thread.outputs = tuple(keras.tree.flatten(inputs))
        outputs = self._thread.outputs
        if level.nested is None:
            masks = iter(outputs[len(level.tensors) :])
            for tensor, masked in zip(outputs, has_mask, strict=False):
                if masked:
                    set_keras_mask(tensor, next(masks))
            values = dict(zip(map(id, level.tensors), outputs, strict=False))
        else:
            values = dict.fromkeys(map(id, level.tensors), outputs[0])
            level.nested.run(values, training)
        _run(level.rest, values, training)
        model = level.model
        wanted = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
        return keras.tree.map_structure(lambda tensor: values[id(tensor)], wanted)


def _run(calls: Sequence[LayerCall], values: dict[int, Any], training: Any) -> None:
    for call in calls:
        call.run(values, training)


def find_frozen_layers(model: keras.Model, max_row_bytes: float) -> FrozenLayers:
    """Return the frozen layers at the beginning of a model, up to the best cut.

    The cut is where the outputs of a row take the fewest bytes, at most ``max_row_bytes``, among
    those that save nearly as many operations as any. Operations are estimated from shapes: weights
    times positions, and elements of the outputs.

    Raises:
        NotSharedError: There is no such cut, or it saves too little.
    """
    for name in _METHODS:
        if replaces_method(model, name):
            raise NotSharedError(f"the model replaces {name}, which may use the rows")
    if not has_layer_graph(model):
        raise NotSharedError(f"{type(model).__name__} calls its layers in custom code")
    cuts, reason = _cuts(model)
    fitting = [cut for cut in cuts if cut.row_bytes <= max_row_bytes]
    if not fitting:
        too_large = "the outputs of the frozen layers do not fit into memory"
        raise NotSharedError(too_large if cuts else reason)
    enough = _NEARLY_ALL * max(cut.saved for cut in fitting)
    good = (cut for cut in fitting if cut.saved >= enough)
    cut = min(good, key=lambda each: each.row_bytes)  # the first of equal ones
    frozen = max(each.saved for each in cuts)
    total = sum(map(_operations, _calls(model)))
    share = cut.saved / (frozen + (1 + _BACKWARD) * (total - frozen))
    if share < LEAST_SHARE:
        raise NotSharedError(f"they are only {share:.0%} of an epoch's operations; {reason}")
    return FrozenLayers(cut.levels, cut.row_bytes, share)


def has_frozen_layers(model: keras.Model) -> bool:
    """Return whether a layer with weights is set to train none of them."""
    return any(layer.weights and not layer.trainable for layer in layers_in(model))


def _cuts(model: keras.Model) -> tuple[list[_Cut], str]:
    """Return the possible cuts of a model, and why there is none after the last one."""
    calls = _calls(model)
    known = {id(tensor): tensor for tensor in layer_graph(model).inputs}
    frozen: list[LayerCall] = []
    reason = "all layers are frozen"
    for call in calls:
        if all(id(tensor) in known for tensor in call.inputs):
            obstacle = _obstacle(call)
            if not obstacle:
                frozen.append(call)
                known |= {id(tensor): tensor for tensor in call.outputs}
            elif reason.startswith("all"):
                reason = obstacle
    cuts, saved = [], 0.0
    for count, last in enumerate(frozen, 1):
        saved += _operations(last)
        before = tuple(frozen[:count])
        rest = _others(calls, before)
        tensors = _crossing(model, before, rest)
        if (row_bytes := _row_bytes(tensors)) is not None:
            cuts.append(_Cut((_Level(model, before, rest, tensors),), saved, row_bytes))
    return cuts + _nested_cuts(model, calls, frozen, saved), reason


def _nested_cuts(
    model: keras.Model,
    calls: Sequence[LayerCall],
    frozen: Sequence[LayerCall],
    saved: float,
) -> list[_Cut]:
    """Return the cuts inside a partly frozen nested model that all paths go through."""
    rest = _others(calls, frozen)
    tensors = _crossing(model, frozen, rest)
    users = [call for call in rest if any(t is each for t in call.inputs for each in tensors)]
    if len(users) != 1 or not _is_graph(users[0].operation):
        return []
    nested = users[0]
    if {id(tensor) for tensor in tensors} != {id(tensor) for tensor in nested.inputs}:
        return []
    after = _others(rest, [nested])
    if any(call.operation is nested.operation for call in after):
        return []  # it is called again
    level = _Level(model, tuple(frozen), after, tensors, nested)
    inner, _ = _cuts(nested.operation)
    return [_Cut((level, *cut.levels), saved + cut.saved, cut.row_bytes) for cut in inner]


def _calls(model: keras.Model) -> list[LayerCall]:
    """Return the calls of a model in order, without its inputs."""
    kind = keras.layers.InputLayer
    return [call for call in calls_in_order(model) if not isinstance(call.operation, kind)]


def _others(calls: Sequence[LayerCall], some: Sequence[LayerCall]) -> tuple[LayerCall, ...]:
    without = set(map(id, some))
    return tuple(call for call in calls if id(call) not in without)


def _crossing(
    model: keras.Model,
    before: Sequence[LayerCall],
    rest: Sequence[LayerCall],
) -> tuple[Any, ...]:
    """Return the tensors that are made before a cut, or are inputs, and used after it."""
    made = {id(tensor) for tensor in layer_graph(model).inputs}
    made |= {id(tensor) for call in before for tensor in call.outputs}
    used = [tensor for call in rest for tensor in call.inputs]
    used += keras.tree.flatten(model.outputs)
    unique = {id(tensor): tensor for tensor in used if id(tensor) in made}
    return tuple(unique.values())


def _row_bytes(tensors: Sequence[Any]) -> int | None:
    """Return the bytes of a row; None if they are unknown."""
    size = 0
    for tensor in tensors:
        shape = tensor.shape[1:]
        if None in shape or tensor.sparse or tensor.dtype == "string" or not len(tensor.shape):
            return None
        size += math.prod(shape) * tf.as_dtype(tensor.dtype).size
    return size


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
    if _generators(layer) and any(rates):
        return f"{name} draws random numbers"
    if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
        return f"{name} collects statistics"
    if isinstance(layer, _RANDOM_OR_STATEFUL) or getattr(layer, "stateful", False):
        return f"{name} may keep state"
    if layer.activity_regularizer is not None:
        return f"{name} adds to the loss"
    return f"{name} is quantized" if getattr(layer, "quantization_mode", None) else ""


def _generators(layer: keras.Layer) -> list[keras.random.SeedGenerator]:
    return [each for each in vars(layer).values() if isinstance(each, keras.random.SeedGenerator)]


def _operations(call: LayerCall) -> float:
    """Estimate the operations of a call for a row."""
    operation = call.operation
    if _is_graph(operation):
        return sum(map(_operations, _calls(operation)))
    shapes = [tuple(size or 1 for size in each.shape[1:]) for each in call.outputs]
    elements = sum(map(math.prod, shapes))
    if isinstance(operation, keras.layers.Embedding):
        return elements
    if isinstance(operation, _RECURRENT):
        shapes = [tuple(size or 1 for size in each.shape[1:]) for each in call.inputs]
    positions = max((math.prod(shape[:-1]) for shape in shapes), default=1)
    variables = getattr(operation, "variables", ())
    weights = sum(math.prod(each.shape) for each in variables if len(each.shape) > 1)
    return float(elements + weights * positions)


def check_outputs(layers: FrozenLayers, x: Any) -> list[bool]:
    """Return whether each output at the cut has a mask, after a check on a few rows.

    Raises:
        NotSharedError: The outputs depend on training, on other rows or on chance, or the rest of
            the model gives other predictions for them.
    """
    state = [(each, each.numpy()) for each in layers.model.variables if not each.trainable]
    try:
        with preserve_global_rng():
            return _checked_masks(layers, x)
    finally:
        for variable, value in state:
            variable.assign(value)


def _checked_masks(layers: FrozenLayers, x: Any) -> list[bool]:
    before = [variable.numpy() for variable in layers.variables]
    outputs = layers.outputs(x)
    trained = layers.outputs(x, training=True)
    numbers = range(len(keras.tree.flatten(x)[0]))
    single = [layers.outputs(rows_between(x, i, i + 1)) for i in numbers]
    if not all(map(_equal, outputs, trained)):
        raise NotSharedError("the outputs of the frozen layers differ between two calls")
    after = [variable.numpy() for variable in layers.variables]
    if not all(map(np.array_equal, before, after)):
        raise NotSharedError("a call of the frozen layers changes a variable")
    for number, output in enumerate(outputs):
        if not _equal(tf.concat([each[number] for each in single], 0), output):
            raise NotSharedError(
                "the outputs of the frozen layers depend on other rows of the batch"
            )
    num_tensors = len(layers.levels[-1].tensors)
    has_mask = [keras_mask(each) is not None for each in outputs[:num_tensors]]
    whole = layers.model(x, training=False)
    with layers.skipped(has_mask):
        rest = layers.model(tuple(map(tf.identity, outputs)), training=False)  # without masks
    if not all(map(_equal, keras.tree.flatten(whole), keras.tree.flatten(rest))):
        raise NotSharedError("the rest of the model gives other predictions")
    return has_mask


def _equal(one: Any, other: Any) -> bool:
    """Return whether tensors are equal but for rounding, which differs between calls on a GPU."""
    if not one.dtype.is_floating:
        return bool(np.array_equal(one, other))
    tolerance = 1e-4 if one.dtype.size > 2 else 3e-2
    first, second = (np.asarray(each, np.float64) for each in (one, other))
    return first.shape == second.shape and np.allclose(
        first, second, tolerance, tolerance * np.max(np.abs(first), initial=0), equal_nan=True
    )
