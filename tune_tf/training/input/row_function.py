"""Validation of user functions that map one row and a seed."""

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import tensorflow as tf

from tune_tf.errors import WorkloadError

_FUNCTIONS = attrgetter("library.function")  # functions called by operations


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield every operation (``NodeDef``) of a ``tf.Graph``, including called functions."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in _FUNCTIONS(definition):
        yield from function.node_def


_STATE = re.compile(
    r"(Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson|PoissonV2|Shuffle)|TruncatedNormal"
    r"|ParameterizedTruncatedNormal|Multinomial|Stateful(?!PartitionedCall)\w+|Rng\w+|Assign\w*VariableOp)"
)


def checked_row(name: str, fn: Callable[..., Any], row: Any) -> Any:
    """Trace a function for one row, and return its symbolic outputs.

    Args:
        name: Name of the function, for messages.
        fn: Function of a row and a seed, int32 of shape ``[2]``; returns a row.
        row: Nested ``tf.TensorSpec`` of the row.

    Raises:
        WorkloadError: The function returns no row, or uses random state outside its seed.
    """
    traced = tf.function(fn, autograph=False).get_concrete_function(
        row, tf.TensorSpec([2], tf.int32)
    )
    made = traced.structured_outputs
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise WorkloadError(
            f"{name} must return a row (x, y) or (x, y, sample_weight), not {made!r}"
        )
    if state := sorted({n.op for n in nodes_of(traced.graph) if _STATE.fullmatch(n.op)}):
        raise WorkloadError(
            f"{name} uses {', '.join(state)}, which keeps its own state, so a trial could not be "
            "restored or repeated: draw random numbers with tf.random.stateless_* or "
            "tf.image.stateless_random_* and the seed passed to it"
        )
    return made
