"""Vectorization of per-row functions over the rows of a batch."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tune_tf.errors import WorkloadError

_log = logging.getLogger(__name__)

# TensorFlow reports the fallback only in its log, mostly below the visible level.
_FELL_BACK = re.compile(r"Using a while_loop for converting (\w+)")

# Not worth a warning: only a loop gives each row numbers from its own seed, at microseconds.
_DRAWS = "StatelessRandom"


def vectorized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a batch that applies ``fn`` to each row and stacks the results.

    TensorFlow converts the operations of ``fn`` to operations on the whole batch
    (``tf.vectorized_map``), in a graph or eagerly, and gradients flow through. It silently runs a
    slow loop over the rows for an operation that it cannot convert; a warning names each such
    operation once. Only that operation is looped, so the result is never slower than ``tf.map_fn``.

    ``fn`` takes a row, which may be nested, of each argument. Structure, shapes and dtypes of its
    result must not depend on the values; use ``tf.where`` and ``tf.cond`` for ``if``. Numbers drawn
    by ``tf.random.uniform`` and similar functions differ between rows and from those of a loop;
    ``tf.random.stateless_uniform`` gives exactly the numbers of a row's seed.

    The returned function raises :class:`~tune_tf.errors.WorkloadError` if numbers of rows differ.
    """
    warned: set[str] = set()
    eager: list[Callable[..., Any]] = []

    def over_rows(*rows: Any) -> Any:
        import tensorflow as tf  # late: naming a workload needs no TensorFlow

        if not tf.executing_eagerly():
            return in_graph(*rows)
        if not eager:  # traced once per shape; `tf.vectorized_map` alone traces at every call
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
                "%s is not fully vectorized: TensorFlow runs %s in a loop over the rows of a "
                "batch; if that is too slow, use other operations",
                _name(fn),
                ", ".join(new),
            )
        return mapped

    return over_rows


def _check_rows(fn: Callable[..., Any], tensors: Any) -> None:
    """Reject arguments of different lengths: TensorFlow would silently repeat a single row."""
    import tensorflow as tf

    flat = tf.nest.flatten(tensors)
    if any(tensor.shape.rank == 0 for tensor in flat):
        raise WorkloadError(f"{_name(fn)} is applied to rows, but was given a single number")
    lengths = {tensor.shape[0] for tensor in flat} - {None}
    if len(lengths) > 1:
        raise WorkloadError(
            f"{_name(fn)} is applied row by row, so all arrays must have the same number of "
            f"rows, not {', '.join(map(str, sorted(lengths)))}"
        )


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)


@contextmanager
def _looped_operations(logger: logging.Logger) -> Iterator[set[str]]:
    """Collect the types of operations that TensorFlow loops over, from its log."""
    operations: set[str] = set()
    level = logger.getEffectiveLevel()

    def listen(record: logging.LogRecord) -> bool:
        if match := _FELL_BACK.search(record.getMessage()):
            operations.add(match[1])
            return False
        return record.levelno >= level

    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addFilter(listen)
    try:
        yield operations
    finally:
        logger.removeFilter(listen)
        logger.setLevel(before)
