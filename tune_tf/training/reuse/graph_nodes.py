"""The operations of a traced graph."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

_FUNCTIONS = attrgetter("library.function")  # those that the operations call


def nodes_of(graph: Any) -> Iterator[Any]:
    """Return every operation (``NodeDef``) of a ``tf.Graph``, those of called functions too."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in _FUNCTIONS(definition):
        yield from function.node_def
