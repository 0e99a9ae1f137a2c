"""Batches of arrays that a device has no room for."""

from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.data.nested import Nested
from tune_tf.training.input.array_tensor import tensor_of
from tune_tf.training.seeds import epoch_order


class ArrayStream:
    """Reader of arrays in the memory of the host, in the order of rows on a device.

    Args:
        arrays: ``(x, y)`` or ``(x, y, sample_weight)``.
    """

    spec = "streamed"

    def __init__(self, arrays: tuple[Nested, ...]) -> None:
        self.arrays = arrays
        with tf.device("CPU:0"):
            #: The same as tensors.
            self.tensors: tuple[Any, ...] = tf.nest.map_structure(tensor_of, arrays)

    def batches(self, size: int, *, seed: int, epoch: int, shuffled: bool) -> Any:
        """Return an iterator of an epoch's batches, ``(numbers, rows)``; the last may be shorter.

        Args:
            size: Rows of a batch.
            seed: Seed of the trial.
            epoch: Number of the epoch, from 0.
            shuffled: Whether the rows are shuffled.
        """
        count = len(tf.nest.flatten(self.tensors)[0])
        order = epoch_order(seed, epoch, count) if shuffled else np.arange(count, dtype=np.int32)
        with tf.device("CPU:0"):
            numbers = tf.constant(order)

            def read(first: tf.Tensor) -> tuple[tf.Tensor, Any]:
                chosen = numbers[first : first + size]
                return chosen, tf.nest.map_structure(lambda a: tf.gather(a, chosen), self.tensors)

            return iter(prefetched(tf.data.Dataset.range(0, count, size).map(read)))


def prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a data set that prepares batches on the trial's CPUs, unless the user chose others."""
    options, threads = tf.data.Options(), tf.config.threading.get_intra_op_parallelism_threads()
    chosen = dataset.options()
    if threads and not chosen.threading.private_threadpool_size:
        options.threading.private_threadpool_size = threads
    if threads and not chosen.autotune.cpu_budget:
        options.autotune.cpu_budget = threads
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)
