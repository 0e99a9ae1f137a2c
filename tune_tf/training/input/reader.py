"""Readers that supply the batches of an epoch inside its graph."""

from typing import Any

import tensorflow as tf


class ResidentReader:
    """Reader of rows in device memory.

    Args:
        rows: Placed ``(x, y[, sample_weight])``.
        order: Row numbers, int32, shape ``[num_rows]``; None for the stored order.
    """

    def __init__(self, rows: Any, order: tf.Tensor | None) -> None:
        self._rows = rows
        self._order = order

    def fetch(self, count: int) -> Any:
        """Return the data that the replicas need for the next batch of ``count`` rows."""
        return self._rows

    def part(
        self, fetched: Any, first: Any, begin: int, end: int, count: int
    ) -> tuple[tf.Tensor, Any]:
        """Return the numbers of some rows of a batch, and the rows; in replica context.

        Args:
            fetched: Return value of :meth:`fetch`.
            first: Position of the batch's first row in the epoch.
            begin: First row of the part, relative to the batch.
            end: End of the part, exclusive.
            count: Rows of the batch.
        """
        length = end - begin
        if self._order is None:
            numbers = first + begin + tf.range(length)
            return numbers, tf.nest.map_structure(
                lambda a: _static_slice(a, first + begin, length), fetched
            )
        numbers = _static_slice(self._order, first + begin, length)
        return numbers, tf.nest.map_structure(lambda a: tf.gather(a, numbers), fetched)

    def dynamic(self, first: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the numbers of the batch from ``first`` to ``end`` (exclusive), and its rows."""
        numbers = tf.range(first, end) if self._order is None else self._order[first:end]
        return numbers, tf.nest.map_structure(lambda a: tf.gather(a, numbers), self._rows)


class StreamReader:
    """Reader of the batches of an iterator of ``ArrayStream.batches``."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def fetch(self, count: int) -> Any:
        """Return the next batch."""
        return tf.nest.map_structure(
            lambda a: tf.ensure_shape(a, [count, *a.shape[1:]]), self._batches.get_next()
        )

    def part(
        self, fetched: Any, first: Any, begin: int, end: int, count: int
    ) -> tuple[tf.Tensor, Any]:
        """Return rows of the batch."""
        numbers, rows = tf.nest.map_structure(
            lambda a: _static_slice(a, begin, end - begin), fetched
        )
        return numbers, rows

    def dynamic(self, first: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Return the next batch."""
        numbers, rows = self._batches.get_next()
        return numbers, rows


def num_rows_of(batch: Any) -> Any:
    """Return the number of rows of a batch: an int if it is static, otherwise an int32 tensor."""
    first = tf.nest.flatten(batch)[0]
    if first.shape.rank and first.shape[0] is not None:
        return int(first.shape[0])
    if isinstance(first, tf.SparseTensor):
        return tf.cast(first.dense_shape[0], tf.int32)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int32)
    return tf.shape(first)[0]


def rows_between(batch: Any, begin: Any, end: Any) -> Any:
    """Return rows ``[begin, end)`` of a batch, whose tensors may be sparse or ragged."""

    def part(leaf: Any) -> Any:
        if not isinstance(leaf, tf.SparseTensor):
            return leaf[begin:end]
        shape = leaf.dense_shape
        rest = tf.zeros_like(shape[1:])
        begin_64, end_64 = (tf.cast(row, tf.int64) for row in (begin, end))
        return tf.sparse.slice(
            leaf,
            tf.concat([[begin_64], rest], 0),
            tf.concat([[end_64 - begin_64], shape[1:]], 0),
        )

    return tf.nest.map_structure(part, batch)


def is_sparse_or_ragged(value: Any) -> bool:
    """Return whether a value is a sparse or ragged tensor, which no array can stand for."""
    return isinstance(value, tf.SparseTensor | tf.RaggedTensor)


Reader = ResidentReader | StreamReader


def _static_slice(array: tf.Tensor, first: Any, count: int) -> tf.Tensor:
    """Return ``array[first:first + count]`` with a static number of rows, as XLA requires."""
    rest = array.shape.rank - 1
    begin = tf.concat([[first], tf.zeros([rest], tf.int32)], 0) if rest else [first]
    return tf.slice(array, begin, [count, *array.shape[1:]])
