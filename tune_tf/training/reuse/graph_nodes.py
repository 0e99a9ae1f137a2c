"""Operations of a traced graph."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

_FUNCTIONS = attrgetter("library.function")  # functions called by operations


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield every operation (``NodeDef``) of a ``tf.Graph``, including called functions."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in _FUNCTIONS(definition):
        yield from function.node_def
