"""Calls of a model with a part of a batch, which must have no effect that depends on the part."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.build import batch_norms, layers_in
from tune_tf.training.keras_internals import added_losses, is_of_keras

_PENALTIES = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
_ASSIGNMENTS = ("assign", "assign_add", "assign_sub")


class PartCalls:
    """Calls of a model with parts of a batch.

    A variable that ``call`` changes, or a loss that it adds, would be that of the part. Keras'
    BatchNormalization, penalties of activities and random generators are excepted.

    Args:
        model: The model, with all variables.
        parts: What the parts are, for error messages, such as "2 replicas".
    """

    def __init__(self, model: keras.Model, parts: str) -> None:
        self._model = model
        self._parts = parts
        self._layers = list(layers_in(model))
        free = {id(v) for layer in batch_norms(model) for v in layer.variables}
        self._fixed: dict[int, tuple[Any, keras.Layer]] = {}
        for layer in self._layers:  # one inside of another comes later
            for variable in _variables_of(layer):
                is_generator = getattr(variable, "name", "") == "seed_generator_state"
                if id(variable) not in free and not is_generator:
                    self._fixed[id(variable)] = variable, layer

    def __call__(self, x: Any, *, training: bool) -> Any:
        """Call the model; refuse effects of its layers.

        Raises:
            WorkloadError: A layer changes a variable or adds a loss.
        """
        return self.watch(partial(self._model, x, training=training))

    def watch(self, call: Callable[[], Any]) -> Any:
        """Run a call of the model or its layers; refuse their effects."""
        with self._without_changes():
            y_pred = call()
        self._refuse_own_losses()
        return y_pred

    def take_penalties(self) -> list[Any]:
        """Take the penalties of activities out of the model's losses, and return them."""
        return [loss for layer in self._layers for loss in added_losses(layer, take=True)]

    @contextlib.contextmanager
    def _without_changes(self) -> Iterator[None]:
        variables = [(v, layer, n) for v, layer in self._fixed.values() for n in _ASSIGNMENTS]
        for variable, layer, name in variables:
            vars(variable)[name] = partial(self._refuse_change, variable, layer)
        try:
            yield
        finally:
            for variable, _, name in variables:
                vars(variable).pop(name, None)  # another replica's thread may have done it

    def _refuse_change(self, variable: Any, layer: keras.Layer, *_: Any, **__: Any) -> NoReturn:
        raise WorkloadError(
            f"{layer.name} ({type(layer).__name__}) changes {variable.name} in its call, which "
            f"gets only a part of each batch with {self._parts}: use one replica and micro_batches "
            "1, or change it outside of call, for example in a callback"
        )

    def _refuse_own_losses(self) -> None:
        for layer in self._layers:
            known = is_of_keras(type(layer)) and type(layer.activity_regularizer) in _PENALTIES
            if added_losses(layer) and not known:
                raise WorkloadError(
                    f"{layer.name} ({type(layer).__name__}) adds a loss of the rows that it gets "
                    f"(add_loss, or an activity_regularizer), which may not add up over "
                    f"{self._parts}: use one replica and micro_batches 1, or return what the loss "
                    "needs as an output and compute it in a loss function"
                )


def _variables_of(layer: keras.Layer) -> Iterator[Any]:
    """Yield the variables of a layer, of its metrics, and TensorFlow's in its attributes."""
    yield from layer.variables
    if is_of_keras(type(layer)):
        return
    waiting: list[Any] = list(vars(layer).values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, tf.Variable):
            yield value
        elif isinstance(value, keras.Metric):
            yield from value.variables
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value


class GraphSpan:
    """Operations that are added to the graph within a context."""

    def __enter__(self) -> "GraphSpan":  # noqa: D105
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._first = self._last = self._count()
        return self

    def __exit__(self, *_: Any) -> None:  # noqa: D105
        self._last = self._count()

    def _count(self) -> int:
        return len(self._graph.get_operations()) if self._graph else 0

    @property
    def operations(self) -> list[Any]:
        """The operations in the order of their creation; none of an eager call."""
        return self._graph.get_operations()[self._first : self._last] if self._graph else []


def refuse_leaks(spans: Iterable[GraphSpan], user: GraphSpan, what: str, parts: str) -> None:
    """Refuse a computation that takes tensors from inside the calls of a model.

    They are those of a part of the batch, and no gradient would reach the model by them.
    """
    shared = ("Placeholder", "Const")  # of variables and numbers from outside of the graph
    made = {
        id(operation)
        for span in spans
        for operation in span.operations
        if operation.type not in shared
    } - set(map(id, user.operations))
    for operation in user.operations:
        for tensor in operation.inputs:
            if id(tensor.op) in made:
                raise WorkloadError(
                    f"{what} takes {tensor.op.name} from inside the model's call, which gets only "
                    f"a part of each batch with {parts}: return that tensor as an output of the "
                    "model, or use one replica and micro_batches 1"
                )


def refuse_mixed_penalties(model: keras.Model, parts: str) -> None:
    """Refuse penalties of activities in a model whose replicas wait for each other in a call.

    A layer then has those of several replicas at once.
    """
    names = [layer.name for layer in layers_in(model) if layer.activity_regularizer is not None]
    if names and any(layer.synchronized for layer in batch_norms(model)):
        raise WorkloadError(
            f"{', '.join(names)} cannot have an activity_regularizer with {parts} whose batch "
            "normalization is synchronized: use one replica, another kind of normalization, or a "
            "kernel_regularizer"
        )


def refuse_random_operations(span: GraphSpan, parts: str) -> None:
    """Refuse random operations that would draw others when the model is called again."""
    for operation in span.operations:
        if operation.type.startswith(("Random", "Truncated", "Multinomial", "ParameterizedTrunc")):
            raise WorkloadError(
                f"the model draws random numbers by tf.random ({operation.name}), which are others "
                f"when the pieces of a batch are computed again ({parts}): use keras.random with "
                "a SeedGenerator of the layer, or micro_batches 1"
            )
