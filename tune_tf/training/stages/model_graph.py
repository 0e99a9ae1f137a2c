"""The calls that make up a Keras model, in an order in which they can be made."""

import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer or operation in a model's graph.

    Args:
        operation: The layer or operation.
        inputs: The symbolic tensors that it takes.
        outputs: The symbolic tensors that it makes.
    """

    operation: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def is_input(self) -> bool:
        """Whether it stands for an input of the model."""
        return isinstance(self.operation, keras.layers.InputLayer)

    @property
    def num_bytes(self) -> int:
        """Bytes of the operation's variables."""
        return sum(
            math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
            for variable in getattr(self.operation, "variables", ())
        )


def calls_of(model: keras.Model) -> list[Call]:
    """Return the calls of a sequential or functional model, each behind those that it needs.

    Two models that were built alike have their calls in the same order.

    Args:
        model: Built.

    Raises:
        WorkloadError: The model's own code calls its layers, so there is no graph of them.
    """
    if not _has_graph(model):
        raise WorkloadError(
            f"{type(model).__name__} calls its layers in code of its own, so there is no graph of "
            "them that could be cut into stages: return a keras.Sequential or a functional model "
            "(keras.Model(inputs, outputs))"
        )
    calls: list[Call] = []
    done: set[tuple[int, int]] = set()
    waiting = [(tensor, False) for tensor in reversed(keras.tree.flatten(model.outputs))]
    while waiting:
        tensor, inputs_are_done = waiting.pop()
        # Keras' own walks over a model read the same two: there is no public way to the edges.
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
