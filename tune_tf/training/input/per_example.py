"""Per-example transformations of a workload, applied inside the epoch graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from tune_tf.data import rows_of, vectorized
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.stream import row_spec, trace_row_function
from tune_tf.workload import Config, Data, Workload


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
                self._specs[training] = trace_row_function(name, fn, row)
                self._fns[training] = vectorized(fn)
        self._sample: tuple[Any, Any] = (None, None)  # before and after the transformation
        self.transform_sample(sample)

    def transform_sample(self, sample: tuple[Any, ...]) -> Any:
        """Transform a few training rows."""
        if self._sample[0] is not sample:
            self._sample = sample, self.transform(sample, _row_numbers(sample), training=True)
        return self._sample[1]

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
        return fn(rows, tf.stack([first, seed[1] + numbers], axis=1))


def _row_numbers(rows: tuple[Any, ...]) -> tf.Tensor:
    return tf.range(len(tf.nest.flatten(rows)[0]))


class PerExampleCache:
    """Per-example transformations of a workload's trials, each with functions of its own."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._count = 0

    def attach(self, config: Config, rows: DeviceRows) -> DeviceRows:
        """Attach a trial's transformations to its rows, if the workload defines any."""
        if not self._workload.computes_rows:
            return rows
        self._count += 1
        per_example = PerExample(self._workload, config, rows.sample, self._count)
        sample = per_example.transform_sample(rows.sample)
        return replace(rows, sample=sample, per_example=per_example)


def apply_per_example(
    workload: Workload, config: Config, rows: tuple[Any, ...], *, training: bool
) -> Any:
    """Return a few rows after the per-example transformations, if the workload defines any."""
    if not workload.computes_rows:
        return rows
    floatx = keras.config.floatx()
    tensors = tf.nest.map_structure(tf.convert_to_tensor, rows_of(Data(rows), floatx=floatx).train)
    per_example = PerExample(workload, config, tensors, 0)
    return per_example.transform(tensors, _row_numbers(tensors), training=training)
