"""A function of one row, applied to all rows of a batch at a time."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tune_tf.errors import WorkloadError

_log = logging.getLogger(__name__)

# TensorFlow says it to its log only, most of it below the level that anyone sees.
_FELL_BACK = re.compile(r"Using a while_loop for converting (\w+)")

# Nothing else gives each row numbers of its own by a seed of its own, and it costs microseconds.
_DRAWS = "StatelessRandom"


def vectorized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a batch that gives what ``fn`` gives for each row, stacked.

    TensorFlow turns the operations of ``fn`` into operations on the whole batch
    (``tf.vectorized_map``), in a graph or eagerly, and gradients flow through. For an operation
    that it cannot turn, it runs a loop over the rows, which is slow and which it does not say; here
    it is told once, by the operation's name. Only that operation is looped, so this is never slower
    than ``tf.map_fn``.

    Rows may be nested, and what ``fn`` returns may have another structure, other shapes and types
    than what it takes; they must not depend on the values. ``tf.where`` and ``tf.cond`` stand for
    ``if``. Numbers drawn by ``tf.random.uniform`` and the like differ from row to row, and from
    those that a loop would draw; those of ``tf.random.stateless_uniform`` are exactly those of a
    row's seed.

    Args:
        fn: Takes a row of each argument, without the axis of the rows.

    Returns:
        A function of as many arguments as ``fn`` has: nested tensors or arrays with the same
        number of rows on the first axis. It raises :class:`~tune_tf.errors.WorkloadError` where
        they differ in rows.
    """
    warned: set[str] = set()
    eager: list[Callable[..., Any]] = []

    def over_rows(*rows: Any) -> Any:
        import tensorflow as tf  # whoever names a workload needs no TensorFlow

        if not tf.executing_eagerly():
            return in_graph(*rows)
        if not eager:  # traced once for each shape, where `tf.vectorized_map` would at every call
            eager.append(tf.function(in_graph, autograph=False))
        return eager[0](*tf.nest.map_structure(tf.convert_to_tensor, rows))

    def in_graph(*rows: Any) -> Any:
        import tensorflow as tf

        tensors = tf.nest.map_structure(tf.convert_to_tensor, rows)
        _check_rows(fn, tensors)
        with _looped_operations(tf.get_logger()) as looped:
            mapped = tf.vectorized_map(lambda row: fn(*row), tensors, warn=False)
        if new := sorted(name for name in looped - warned if not name.startswith(_DRAWS)):
            warned.update(new)
            _log.warning(
                "%s is not vectorised as a whole: TensorFlow runs %s in a loop over the rows of a "
                "batch; where that is too slow, use other operations",
                _name(fn),
                ", ".join(new),
            )
        return mapped

    return over_rows


def _check_rows(fn: Callable[..., Any], tensors: Any) -> None:
    """Refuse arguments of different lengths: one of a single row would be repeated silently."""
    import tensorflow as tf

    flat = tf.nest.flatten(tensors)
    if any(tensor.shape.rank == 0 for tensor in flat):
        raise WorkloadError(f"{_name(fn)} is applied to rows, but was given a single number")
    lengths = {tensor.shape[0] for tensor in flat} - {None}
    if len(lengths) > 1:
        raise WorkloadError(
            f"{_name(fn)} is applied to the rows of several arrays, which must have the same "
            f"number, not {', '.join(map(str, sorted(lengths)))}"
        )


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)


@contextmanager
def _looped_operations(logger: logging.Logger) -> Iterator[set[str]]:
    """Collect the types of the operations that TensorFlow loops over while it vectorises.

    Args:
        logger: TensorFlow's.
    """
    found: set[str] = set()
    level = logger.getEffectiveLevel()

    def listen(record: logging.LogRecord) -> bool:
        if match := _FELL_BACK.search(record.getMessage()):
            found.add(match[1])
            return False
        return record.levelno >= level

    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addFilter(listen)
    try:
        yield found
    finally:
        logger.removeFilter(listen)
        logger.setLevel(before)
