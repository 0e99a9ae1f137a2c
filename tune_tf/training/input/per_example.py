"""Per-example transformations of a workload, applied inside the epoch graph."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.workload import Config, Data, Workload

_STATEFUL_OPERATION = re.compile(
    r"(Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson|PoissonV2|Shuffle|Crop)|TruncatedNormal"
    r"|ParameterizedTruncatedNormal|Multinomial|Stateful(?!PartitionedCall)\w+|Rng\w+|Assign\w*VariableOp"
    r"|SampleDistortedBoundingBox(V2)?|\w+CandidateSampler|NonDeterministicInts)"
)


class PerExample:
    """Vectorized per-example transformations of one trial, for training and for validation rows.

    Raises:
        WorkloadError: A function returns no row, or uses random state outside its seed.
    """

    def __init__(self, workload: Workload, config: Config, sample: tuple[Any, ...]) -> None:
        self._fns: dict[bool, Callable[..., Any]] = {}
        self._specs: dict[bool, Any] = {}
        row = tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape[1:], a.dtype), sample)
        for training in (True, False):
            fn = workload.per_example(config, training=training)
            if fn is not None:
                name = f"the function that {type(workload).__name__}.per_example returned"
                self._specs[training] = _traced_row(name, fn, row)
                self._fns[training] = fn
        #: A few training rows after the transformation.
        self.sample = self.transform(sample, _row_numbers(sample), training=True)

    def transform(
        self, rows: Any, numbers: tf.Tensor, seed: Any = (0, 0), *, training: bool
    ) -> Any:
        """Transform rows by their numbers in the data set and the epoch's seed, int32 both."""
        fn = self._fns.get(training)
        if fn is None:
            return rows
        if numbers.shape[0] == 0:  # a replica without rows; TensorFlow cannot map over none
            return tf.nest.map_structure(
                lambda spec: tf.zeros((0, *spec.shape), spec.dtype), self._specs[training]
            )
        first = tf.fill(tf.shape(numbers), tf.cast(seed[0], tf.int32))
        seeds = tf.stack([first, seed[1] + numbers], axis=1)
        return tf.vectorized_map(lambda row: fn(*row), (rows, seeds))


def _traced_row(name: str, fn: Callable[..., Any], row: Any) -> Any:
    """Trace a function of a row and a seed, int32 of shape ``[2]``; return its symbolic outputs."""
    traced = tf.function(fn, autograph=False).get_concrete_function(
        row, tf.TensorSpec([2], tf.int32)
    )
    outputs = traced.structured_outputs
    if not isinstance(outputs, tuple) or len(outputs) not in (2, 3):
        raise WorkloadError(
            f"{name} must return a row (x, y) or (x, y, sample_weight), not {outputs!r}"
        )
    operations = {node.op for node in graph_operations(traced.graph)}
    if stateful := sorted(filter(_STATEFUL_OPERATION.fullmatch, operations)):
        raise WorkloadError(
            f"{name} uses {', '.join(stateful)}, which keeps its own state, so a trial could not "
            "be restored or repeated: draw random numbers with tf.random.stateless_* or "
            "tf.image.stateless_random_* and the seed passed to it"
        )
    return outputs


def graph_operations(graph: Any) -> Iterator[Any]:
    """Yield every operation (``NodeDef``) of a ``tf.Graph``, including called functions."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _row_numbers(rows: tuple[Any, ...]) -> tf.Tensor:
    return tf.range(len(tf.nest.flatten(rows)[0]))


def with_per_example(workload: Workload, config: Config, rows: DeviceRows) -> DeviceRows:
    """Return a trial's rows with its transformations, if the workload defines any."""
    if not workload.computes_rows:
        return rows
    per_example = PerExample(workload, config, rows.sample)
    return replace(rows, sample=per_example.sample, per_example=per_example)


def apply_per_example(
    workload: Workload, config: Config, rows: tuple[Any, ...], *, training: bool
) -> Any:
    """Return a few rows after the per-example transformations, if the workload defines any."""
    if not workload.computes_rows:
        return rows
    floatx = keras.config.floatx()
    tensors = tf.nest.map_structure(tf.convert_to_tensor, rows_of(Data(rows), floatx=floatx).train)
    per_example = PerExample(workload, config, tensors)
    return per_example.transform(tensors, _row_numbers(tensors), training=training)
