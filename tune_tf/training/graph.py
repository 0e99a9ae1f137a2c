"""Traced graphs of an epoch, which trials of one structure run with their own variables."""

import contextlib
import logging
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.keras_internals import captured_handles, parts_of_variable
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.traced_scalar import TracedScalars

if TYPE_CHECKING:
    from tune_tf.training.program import Program

_MISSING_KERNEL = re.compile(r"on XLA_\w+: (\w+) \(")
_XLA_ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.InternalError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
)

_log = logging.getLogger(__name__)

Body = Callable[..., Any]


@dataclass
class _Traced:
    function: Any
    captures: list[Any]  # number of a handle of the user, or what all users share
    is_compiled: bool


class EpochGraph:
    """Traced functions of an epoch.

    They are called with the variables of whichever model uses them in the place of those that were
    traced, so nothing is copied. Where they use other variables, they are for that model alone.

    Args:
        replicas: Replicas that run the graph.
        numbers: Scalars that it reads at every call; none to trace them as constants.
    """

    def __init__(self, replicas: Replicas, numbers: Sequence[float] = ()) -> None:
        with replicas.scope():
            self.scalars = TracedScalars(numbers)
        with tf.device("CPU:0"):
            #: Batches and rows of a data set in the last epoch.
            self.seen = tf.Variable(tf.zeros([2], tf.int64), trainable=False)
        own = [self.seen, *self.scalars.variables]
        self._own = {id(part.handle) for each in own for part in parts_of_variable(each)}
        self._functions: dict[str, _Traced] = {}
        self._user: Program | None = None
        #: Variables of the model that was traced, beside those that its structure has.
        self.others: list[Any] = []

    def trace(self, name: str, user: "Program", body: Body, *args: Any) -> None:
        """Trace a function for arguments like these, unless a user of the graph did."""
        self._bind(user)
        if name not in self._functions:
            self._functions[name] = self._traced(user, body, args, user.jit_compile)

    def run(self, name: str, user: "Program", body: Body, *args: Any) -> Any:
        """Run a function with the variables of a user."""
        self.trace(name, user, body, *args)
        traced = self._functions[name]
        try:
            return traced.function(*args)
        except _XLA_ERRORS as error:
            if not traced.is_compiled:
                raise
            missing = _MISSING_KERNEL.search(error.message)
            reason = f"no kernel for {missing[1]}" if missing else error.message.partition("\n")[0]
        self._functions[name] = traced = self._traced(user, body, args, jit_compile=False)
        result = traced.function(*args)  # XLA assigns no variable before all is computed
        _log.warning(
            "XLA cannot compile this model (%s), so it trains without: compile it with "
            "jit_compile=False",
            reason,
        )
        return result

    def release(self) -> None:
        """Let go of the variables of the last user."""
        self._user = None
        for traced in self._functions.values():
            traced.function.set_external_captures([])

    def _bind(self, user: "Program") -> None:
        if self._user is not user:
            self._user = user
            self.scalars.assign(user.numbers[: len(self.scalars.variables)])
            for traced in self._functions.values():
                _set_captures(traced, user.handles)

    def _traced(self, user: "Program", body: Body, args: Any, jit_compile: bool) -> _Traced:
        # TensorFlow counts traces by code object and would warn of many; a partial has none.
        function = tf.function(
            partial(user.trace, body, self.scalars),
            autograph=False,
            jit_compile=jit_compile or None,
        ).get_concrete_function(*args)
        numbers = {id(handle): number for number, handle in enumerate(user.handles)}
        captures = [numbers.get(id(each), each) for each in captured_handles(function)]
        variables = {id(each.handle): each for each in function.graph.variables}  # in any order
        others = [each for each in captures if id(each) in variables.keys() - self._own]
        self.others += [variables[id(each)] for each in others]
        traced = _Traced(function, captures, jit_compile)
        _set_captures(traced, user.handles)
        return traced


def _set_captures(traced: _Traced, handles: Sequence[Any]) -> None:
    traced.function.set_external_captures(
        [handles[each] if isinstance(each, int) else each for each in traced.captures]
    )


@contextlib.contextmanager
def refuse_new_variables(num_replicas: int) -> Iterator[None]:
    """Refuse code that creates a variable while it is traced for several replicas.

    Raises:
        WorkloadError: Code creates one.
    """

    def create(next_creator: Callable[..., Any], **settings: Any) -> Any:
        if num_replicas > 1 and not tf.executing_eagerly():
            raise WorkloadError(
                f"{_caller()} creates a variable at its first call, which {num_replicas} replicas "
                "cannot share: create it in build_model or an __init__ before, with "
                "aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, or use one replica"
            )
        return next_creator(**settings)

    with tf.variable_creator_scope(create):
        yield


def _caller() -> str:
    """Return the innermost function that is no library's, with its file and line."""
    libraries = ("contextlib", "keras", "tensorflow", "tune_tf")
    frames = (frame for frame, _ in traceback.walk_stack(None))
    caller = next(
        f for f in frames if f.f_globals.get("__name__", "").split(".")[0] not in libraries
    )
    return f"{caller.f_code.co_qualname} ({caller.f_code.co_filename}:{caller.f_lineno})"


class GraphCache:
    """Graphs of a process, by the structure of what they were traced for."""

    def __init__(self) -> None:
        self._graphs: dict[str, list[EpochGraph]] = defaultdict(list)
        #: Number of graphs that were traced.
        self.num_traced = 0

    def find(
        self, key: str | None, numbers: Sequence[float], replicas: Replicas
    ) -> tuple[EpochGraph, bool]:
        """Return a graph, and whether an earlier model traced it.

        Args:
            key: Key of the structure; None for a graph that no other model may use.
            numbers: Values of the traced scalars of the model.
            replicas: Replicas that run the graph.
        """
        if key is None:
            self.num_traced += 1
            return EpochGraph(replicas), False
        graphs = self._graphs[key] = [each for each in self._graphs[key] if not each.others]
        for graph in graphs:
            if graph.scalars.are_valid_for(numbers):
                return graph, True
        self.num_traced += 1
        graph = EpochGraph(replicas, numbers)
        graphs.append(graph)
        return graph, False
