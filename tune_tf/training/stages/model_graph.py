"""Layer calls of a Keras model in topological order."""

import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError


@dataclass(frozen=True, eq=False)
class Call:
    """Call of a layer or operation, with its symbolic input and output tensors."""

    operation: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def is_input(self) -> bool:
        """Whether the call is an input layer of the model."""
        return isinstance(self.operation, keras.layers.InputLayer)

    @property
    def num_bytes(self) -> int:
        """Bytes of the operation's variables."""
        return sum(
            math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
            for variable in getattr(self.operation, "variables", ())
        )


def calls_of(model: keras.Model) -> list[Call]:
    """Return the calls of a built sequential or functional model in topological order.

    The order is the same for models that were built alike.

    Raises:
        WorkloadError: The model is subclassed, so it has no graph of layers.
    """
    if not _has_graph(model):
        raise WorkloadError(
            f"{type(model).__name__} calls its layers in custom code, so there is no layer graph "
            "to cut into stages: return a keras.Sequential or a functional model "
            "(keras.Model(inputs, outputs))"
        )
    calls: list[Call] = []
    done: set[tuple[int, int]] = set()
    waiting = [(tensor, False) for tensor in reversed(keras.tree.flatten(model.outputs))]
    while waiting:
        tensor, inputs_are_done = waiting.pop()
        # Keras reads the same two attributes; the edges of the graph have no public interface.
        operation, index, _ = tensor._keras_history  # noqa: SLF001
        node = operation._inbound_nodes[index]  # noqa: SLF001
        if (id(operation), index) in done:
            continue
        if inputs_are_done:
            done.add((id(operation), index))
            calls.append(Call(operation, tuple(node.input_tensors), tuple(node.output_tensors)))
        else:
            waiting.append((tensor, True))
            waiting += [(each, False) for each in reversed(node.input_tensors)]
    return calls


def _has_graph(model: keras.Model) -> bool:
    if not getattr(model, "outputs", None):
        return False
    caller = next(each for each in type(model).__mro__ if "call" in vars(each))
    return caller.__module__.split(".")[0] == "keras"
