"""Streaming of a pipeline's batches, epoch after epoch."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.digest import digest
from tune_tf.data.nested import map_nested
from tune_tf.data.pipeline import Pipeline
from tune_tf.errors import WorkloadError
from tune_tf.training.input.array_tensor import tensor_of
from tune_tf.training.seeds import epoch_order

SAMPLE_ROWS = 2
"""Rows that are read before training."""

_STATEFUL_OPERATION = re.compile(
    r"(Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson|PoissonV2|Shuffle|Crop)|TruncatedNormal"
    r"|ParameterizedTruncatedNormal|Multinomial|Stateful(?!PartitionedCall)\w+|Rng\w+|Assign\w*VariableOp"
    r"|SampleDistortedBoundingBox(V2)?|\w+CandidateSampler|NonDeterministicInts)"
)


def graph_operations(graph: Any) -> Iterator[Any]:
    """Yield every operation (``NodeDef``) of a ``tf.Graph``, including called functions."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def trace_row_function(name: str, fn: Callable[..., Any], row: Any) -> Any:
    """Trace a function of a row and a seed, int32 of shape ``[2]``; return its symbolic outputs.

    Raises:
        WorkloadError: The function returns no row, or uses random state outside its seed.
    """
    traced = tf.function(fn, autograph=False).get_concrete_function(
        row, tf.TensorSpec([2], tf.int32)
    )
    outputs = traced.structured_outputs
    _check_row(name, outputs)
    _refuse_state(name, traced.graph, "the seed passed to it")
    return outputs


def _refuse_state(name: str, graph: Any, seed: str) -> None:
    operations = {node.op for node in graph_operations(graph)}
    if stateful := sorted(filter(_STATEFUL_OPERATION.fullmatch, operations)):
        raise WorkloadError(
            f"{name} uses {', '.join(stateful)}, which keeps its own state, so a trial could not "
            "be restored or repeated: draw random numbers with tf.random.stateless_* or "
            f"tf.image.stateless_random_* and {seed}"
        )


def _check_row(name: str, outputs: Any) -> None:
    if not isinstance(outputs, tuple) or len(outputs) not in (2, 3):
        raise WorkloadError(
            f"{name} must return a row (x, y) or (x, y, sample_weight), not {outputs!r}"
        )


def whole_batch(num_rows: int) -> tuple[int, int]:
    """Return the window of a process that reads the whole batch."""
    return 0, num_rows


class Stream:
    """Reader of a pipeline's rows, in any order and any batch size.

    Args:
        name: Name of the data set, for messages.
        window: Function from a number of rows of a batch to the part ``[first, last)`` that this
            process reads; other processes read the rest.

    Raises:
        WorkloadError: A row is unreadable or malformed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        window: Callable[[int], tuple[int, int]] = whole_batch,
    ) -> None:
        self._pipeline = pipeline
        self._map = None if pipeline.map is None else tf.function(pipeline.map)  # with AutoGraph
        self._name = name
        self._window = window
        self.num_rows = pipeline.num_rows
        self._source = tf.nest.map_structure(tensor_of, pipeline.rows)
        with tf.device("CPU:0"):
            self._order = tf.Variable(tf.range(self.num_rows), trainable=False)
        self._datasets: dict[int, tf.data.Dataset] = {}
        #: First few rows as plain tensors.
        self.sample = self._read_sample()
        row = row_spec(self.sample)
        #: Comparable shapes and types of the rows.
        self.spec = tuple((tuple(leaf.shape), leaf.dtype.name) for leaf in tf.nest.flatten(row))

    def batches(self, size: int, *, seed: int, epoch: int, shuffled: bool) -> Any:
        """Return an iterator of an epoch's batches, ``(numbers, rows)``; the last may be shorter.

        Args:
            size: Rows of a batch.
            seed: Seed of the trial.
            epoch: Number of the epoch, from 0.
            shuffled: Whether the rows are shuffled.
        """
        order = epoch_order(seed, epoch, self.num_rows) if shuffled else np.arange(self.num_rows)
        self._order.assign(order.astype(np.int32))
        if size not in self._datasets:
            self._datasets[size] = prefetched(self._read_batches(size))
        return iter(self._datasets[size])

    def in_order(self, size: int) -> Iterator[tuple[Any, ...]]:
        """Yield all rows, ``size`` at a time, also those of other processes."""
        numbers = tf.data.Dataset.range(self.num_rows, output_type=tf.int32)
        rows = numbers.map(self._read_row, tf.data.AUTOTUNE, deterministic=True)
        for _, batch in prefetched(rows.batch(size)):
            yield batch

    def content(self) -> bytes | None:
        """Return bytes that are equal for equal ``rows`` and ``map``; None if not comparable."""
        return digest((map_nested(np.asarray, self._pipeline.rows), self._pipeline.map))

    def _read_batches(self, size: int) -> tf.data.Dataset:
        full, rest = divmod(self.num_rows, size)
        begin, end = self._window(size)
        starts = tf.data.Dataset.range(full).map(lambda batch: batch * size + begin)
        batches = self._read_batches_at(starts, end - begin)
        if not rest:
            return batches
        begin, end = self._window(rest)
        last = tf.data.Dataset.from_tensors(tf.constant(full * size + begin, tf.int64))
        return batches.concatenate(self._read_batches_at(last, end - begin))

    def _read_batches_at(self, starts: tf.data.Dataset, count: int) -> tf.data.Dataset:
        if self._map is None:
            return starts.map(lambda start: self._gather(self._order[start : start + count]))
        positions = starts.flat_map(lambda start: tf.data.Dataset.range(start, start + count))
        rows = positions.map(
            lambda position: self._read_row(self._order[position]),
            tf.data.AUTOTUNE,
            deterministic=True,
        )
        return rows.batch(count)

    def _gather(self, numbers: tf.Tensor) -> tuple[tf.Tensor, Any]:
        rows = tf.nest.map_structure(lambda a: _as_floatx(tf.gather(a, numbers)), self._source)
        return numbers, rows

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _read_row(self, number: tf.Tensor) -> tuple[tf.Tensor, Any]:
        row = tf.nest.map_structure(lambda a: _as_floatx(a[number]), self._source)
        if self._map is None:
            return number, row
        row = self._map(*row)
        _check_row(f"the map of Data.{self._name}", row)
        return number, row

    def _read_sample(self) -> Any:
        """Read the first rows, which reveals most errors before training."""
        count = min(SAMPLE_ROWS, self.num_rows)
        first = tf.data.Dataset.range(count, output_type=tf.int32).map(self._read_row)
        if self._map is not None:
            row = tf.nest.map_structure(lambda a: _as_floatx(a[0]), self._source)
            graph = self._map.get_concrete_function(*row).graph
            _refuse_state(f"the map of Data.{self._name}", graph, "the seed of per_example")
        name = f"the map of Data.{self._name}"
        for spec in tf.nest.flatten(first.element_spec[1]):
            if None in spec.shape:
                raise WorkloadError(
                    f"{name} returns a tensor of shape {spec.shape}: a batch needs rows of one "
                    "known shape; resize them, or set it with tf.ensure_shape"
                )
        try:
            _, rows = next(iter(first.batch(count)))
        except tf.errors.OpError as error:
            raise WorkloadError(
                f"the first rows of Data.{self._name} cannot be read: {error.message}"
            ) from error
        return rows


def prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a data set that prepares batches on the trial's CPUs, unless the user chose others."""
    options, threads = tf.data.Options(), tf.config.threading.get_intra_op_parallelism_threads()
    chosen = dataset.options()
    if threads and not chosen.threading.private_threadpool_size:
        options.threading.private_threadpool_size = threads
    if threads and not chosen.autotune.cpu_budget:
        options.autotune.cpu_budget = threads
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def row_spec(rows: Any) -> Any:
    """Return the nested ``tf.TensorSpec`` of a row."""
    return tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape[1:], a.dtype), rows)


def _as_floatx(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor
