"""Per-example transformations of a workload, applied inside the epoch graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from tune_tf.data import LoadCache, rows_of, vectorized
from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.stream import checked_row, row_spec
from tune_tf.workload import Config, Data, Workload

_KEPT = 64
_PER_EXAMPLE = "per_example"


class PerExample:
    """Vectorized per-example transformations of one trial, for training and for validation rows.

    ``number`` is equal for trials with the same functions.

    Raises:
        WorkloadError: A function returns no row, or uses random state outside its seed.
    """

    def __init__(
        self, workload: Workload, config: Config, sample: tuple[Any, ...], number: int
    ) -> None:
        self.number = number
        self._fns: dict[bool, Callable[..., Any]] = {}
        self._specs: dict[bool, Any] = {}
        row = row_spec(sample)
        for training in (True, False):
            fn = workload.per_example(config, training=training)
            if fn is not None:
                name = f"the function that {type(workload).__name__}.per_example returned"
                self._specs[training] = checked_row(name, fn, row)
                self._fns[training] = vectorized(fn)
        self._sample: tuple[Any, Any] = (None, None)
        self.applied_to(sample)

    def applied_to(self, sample: tuple[Any, ...]) -> Any:
        """Transform a few training rows."""
        if self._sample[0] is not sample:
            numbers = tf.range(len(tf.nest.flatten(sample)[0]))
            self._sample = sample, self.applied(sample, numbers, (0, 0), training=True)
        return self._sample[1]

    def applied(self, rows: Any, numbers: tf.Tensor, seed: Any, *, training: bool) -> Any:
        """Transform rows.

        Args:
            rows: Rows ``(x, y[, sample_weight])``.
            numbers: Numbers of the rows in their data set, int32.
            seed: Seed of the epoch, int32, shape ``[2]``.
            training: Whether the rows are for training.
        """
        fn = self._fns.get(training)
        if fn is None:
            return rows
        if numbers.shape[0] == 0:  # a replica without rows; TensorFlow cannot map over none
            return tf.nest.map_structure(
                lambda spec: tf.zeros((0, *spec.shape), spec.dtype), self._specs[training]
            )
        first = tf.fill(tf.shape(numbers), tf.cast(seed[0], tf.int32))
        return fn(rows, tf.stack([first, seed[1] + numbers], axis=1))


class PerExampleCache:
    """Cache of a workload's per-example transformations.

    Trials share one, and its traced programs, if their data have equal shapes, the functions read
    equal config values, and ``load_data`` left the workload in the same state.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._sample: tuple[Any, ...] = ()
        self._cache = LoadCache(self._made, _KEPT)
        self._count = 0

    def of(self, config: Config, rows: DeviceRows) -> DeviceRows:
        """Attach a trial's transformations to its rows, if the workload defines any."""
        if not self._workload.computes_rows:
            return rows
        self._sample = rows.sample
        version = WorkloadCopies.of(self._workload).loaded_version
        made = self._cache.get(config, (repr(rows.spec), version))
        return replace(rows, sample=made.applied_to(rows.sample), per_example=made)

    def _made(self, config: Config) -> PerExample:
        self._count += 1
        copies = WorkloadCopies.of(self._workload)
        made, changes = copies.run(
            _PER_EXAMPLE, lambda copy: PerExample(copy, config, self._sample, self._count)
        )
        copies.apply(_PER_EXAMPLE, changes, config)
        return made


def apply_per_example(
    workload: Workload, config: Config, rows: tuple[Any, ...], *, training: bool
) -> tuple[Any, ...]:
    """Return a few rows after the per-example transformations, if the workload defines any."""
    if not workload.computes_rows:
        return rows
    floatx = keras.config.floatx()
    tensors = tf.nest.map_structure(tf.convert_to_tensor, rows_of(Data(rows), floatx=floatx).train)
    numbers = tf.range(len(tf.nest.flatten(tensors)[0]))
    made = PerExample(workload, config, tensors, 0)
    seen: tuple[Any, ...] = made.applied(tensors, numbers, (0, 0), training=training)
    return seen
