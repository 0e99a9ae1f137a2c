"""Vectorization of per-row functions over the rows of a batch."""

from collections.abc import Callable
from typing import Any

from tune_tf.errors import WorkloadError


def vectorized(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a batch that applies ``fn`` to each row and stacks the results.

    TensorFlow converts the operations of ``fn`` to operations on the whole batch
    (``tf.vectorized_map``), in a graph or eagerly, and gradients flow through. It runs a slow loop
    over the rows for an operation that it cannot convert, and warns of most of these. Only that
    operation is looped, so the result is never slower than ``tf.map_fn``.

    ``fn`` takes a row, which may be nested, of each argument. Structure, shapes and dtypes of its
    result must not depend on the values; use ``tf.where`` and ``tf.cond`` for ``if``. Numbers drawn
    by ``tf.random.uniform`` and similar functions differ between rows and from those of a loop;
    ``tf.random.stateless_uniform`` gives exactly the numbers of a row's seed.

    The returned function raises :class:`~tune_tf.errors.WorkloadError` if numbers of rows differ.
    """

    def over_rows(*rows: Any) -> Any:
        import tensorflow as tf  # late: naming a workload needs no TensorFlow

        tensors = tf.nest.map_structure(tf.convert_to_tensor, rows)
        flat = tf.nest.flatten(tensors)
        name = getattr(fn, "__qualname__", type(fn).__name__)
        if any(tensor.shape.rank == 0 for tensor in flat):
            raise WorkloadError(f"{name} is applied to rows, but was given a single number")
        lengths = {tensor.shape[0] for tensor in flat} - {None}
        if len(lengths) > 1:  # TensorFlow would silently repeat a single row
            raise WorkloadError(
                f"{name} is applied row by row, so all arrays must have the same number of rows, "
                f"not {', '.join(map(str, sorted(lengths)))}"
            )
        return tf.vectorized_map(lambda row: fn(*row), tensors)

    return over_rows
