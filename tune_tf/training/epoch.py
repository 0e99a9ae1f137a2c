"""Inputs of an epoch and the loop over its batches inside a graph."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tune_tf.training.input.dataset_stream import DatasetStream
from tune_tf.training.input.device_rows import STREAMS, DeviceRows
from tune_tf.training.input.reader import Reader, num_rows_of, rows_between
from tune_tf.training.replicas.batch_parts import replica_rows
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.seeds import epoch_order, example_seeds
from tune_tf.workload import Config, Workload

NumberedStep = Callable[[int, Any, tf.Tensor, Any], Any]
"""``step(replica, batch, row_numbers, num_rows)``; ``num_rows`` is that of the global batch."""


class TrialInputs(NamedTuple):
    """Config, rows on the devices and seed of a trial."""

    config: Config
    rows: DeviceRows
    seed: int


class EpochInputs(NamedTuple):
    """Inputs of one epoch.

    Args:
        train: Training rows ``(x, y[, sample_weight])`` on the devices, or a batch iterator.
        max_batches: Batches to train on; None for all.
        validation: Validation rows in either form, or None.
        order: Row numbers, int32, shape ``[num_rows]``; None for an iterator.
        seeds: Seeds of the per-example preprocessing (see ``example_seeds``); None without it.
    """

    train: Any
    validation: Any
    order: "np.ndarray[Any, Any] | None"
    seeds: "np.ndarray[Any, Any] | None"
    max_batches: int | None = None


def epoch_inputs(workload: Workload, trial: TrialInputs, epoch: int) -> EpochInputs:
    """Return the inputs of an epoch, counted from 0."""
    config, rows, seed = trial
    train, validation = rows.train, rows.validation
    order = None
    size = rows.batch_size(workload, config)
    if isinstance(train, STREAMS):
        train = _batches(train, size, seed, epoch, shuffled=workload.shuffle(config))
    else:
        order = row_order(workload, trial, epoch)
    if isinstance(validation, STREAMS):
        validation = _batches(validation, size, seed, 0, shuffled=False)
    seeds = example_seeds(seed, epoch) if rows.per_example else None
    steps = rows.train.steps if isinstance(rows.train, DatasetStream) else None
    return EpochInputs(train, validation, order, seeds, steps)


def _batches(rows: Any, size: int, seed: int, epoch: int, *, shuffled: bool) -> Any:
    """Return an iterator of an epoch's batches; a data set shuffles its rows itself."""
    if isinstance(rows, DatasetStream):
        return rows.batches(size, seed=seed, epoch=epoch)
    return rows.batches(size, seed=seed, epoch=epoch, shuffled=shuffled)


def row_order(workload: Workload, trial: TrialInputs, epoch: int) -> "np.ndarray[Any, Any]":
    """Return the row numbers of an epoch, int32, shape ``[num_rows]``."""
    rows, shuffled = trial.rows, workload.shuffle(trial.config)
    if shuffled:
        return epoch_order(trial.seed, epoch, rows.num_train)
    return np.arange(rows.num_train, dtype=np.int32)


class BatchLoop:
    """Loop over all batches of a data set, of ``size`` rows each, as part of a graph."""

    def __init__(self, replicas: Replicas, size: int, *, needs_static_shapes: bool) -> None:
        self._replicas = replicas
        self._size = size
        self._needs_static_shapes = needs_static_shapes

    def run(
        self,
        step: NumberedStep,
        reader: Reader,
        num_rows: int,
        max_batches: tf.Tensor,
        *,
        has_logs: bool,
        whole: bool,
    ) -> Any:
        """Run all batches; return the last step's result if it has logs.

        ``max_batches`` limits the batches in the loop; batches after the loop always run. For
        ``whole`` see ``replica_rows``.
        """
        size = self._size
        if num_rows % size and not has_logs and not self._needs_static_shapes:
            self._run_uneven(step, reader, num_rows, max_batches)
            return None
        num_full, remainder = divmod(num_rows, size)
        # A loop cannot return its last step's result, so that step runs after the loop.
        num_looped = num_full - 1 if has_logs and not remainder else num_full
        result = None

        def run_batch(first: Any, count: int) -> Any:
            def run_in_replica(replica: int, fetched: Any) -> Any:
                begin, end = replica_rows(count, replica, self._replicas.num, whole=whole)
                numbers, rows = reader.part(fetched, first, begin, end, count)
                return step(replica, rows, numbers, count)

            return self._replicas.run(run_in_replica, reader.fetch(count))

        def body(i: tf.Tensor) -> tuple[tf.Tensor]:
            run_batch(i * size, size)
            return (i + 1,)

        if num_looped == 1:
            result = run_batch(0, size)
        elif num_looped > 1:
            end = tf.minimum(max_batches, num_looped)
            tf.while_loop(lambda i: i < end, body, (tf.constant(0),), parallel_iterations=1)
        if num_full > num_looped:
            result = run_batch(num_looped * size, size)
        if remainder:
            result = run_batch(num_full * size, remainder)
        return result if has_logs else None

    def run_dataset(
        self,
        step: NumberedStep,
        batches: Any,
        max_batches: tf.Tensor,
        *,
        has_logs: bool,
        whole: bool,
    ) -> tuple[Any, tf.Tensor]:
        """Run the batches of an iterator of a data set, at most ``max_batches``.

        Returns:
            The last step's result if it has logs; numbers of batches and rows, int64 [2].
        """

        def run_batch(seen: tf.Tensor, batch: Any) -> tuple[Any, tf.Tensor]:
            first, count, replicas = tf.cast(seen[1], tf.int32), num_rows_of(batch), self._replicas

            def run_in_replica(replica: int, batch: Any) -> Any:
                begin, end = replica_rows(count, replica, replicas.num, whole=whole)
                rows = batch if replicas.num == 1 else rows_between(batch, begin, end)
                return step(replica, rows, first + tf.range(begin, end), count)

            result = replicas.run(run_in_replica, batch)
            return result if has_logs else (), seen + tf.stack([1, tf.cast(count, tf.int64)])

        seen, result = tf.zeros([2], tf.int64), ()
        if has_logs:  # the first batch gives the form of the results
            result, seen = run_batch(seen, batches.get_next_as_optional().get_value())
        end = tf.cast(max_batches, tf.int64)

        def body(seen: tf.Tensor, result: Any, ended: Any) -> tuple[Any, ...]:
            batch = batches.get_next_as_optional()

            def run() -> tuple[Any, ...]:
                result, now_seen = run_batch(seen, batch.get_value())
                return now_seen, result, tf.constant(False)

            return tf.cond(batch.has_value(), run, lambda: (seen, result, tf.constant(True)))

        seen, result, _ = tf.while_loop(
            lambda seen, result, ended: tf.logical_not(ended) & (seen[0] < end),
            body,
            (seen, result, tf.constant(False)),
            parallel_iterations=1,
        )
        return (result if has_logs else None), seen

    def _run_uneven(
        self, step: NumberedStep, reader: Reader, num_rows: int, max_batches: tf.Tensor
    ) -> None:
        """Run all batches in one loop, so that a shorter last batch needs no trace."""
        size = self._size
        last = tf.minimum(tf.minimum(max_batches, num_rows // size + 1) * size, num_rows)

        def body(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + size, num_rows)
            numbers, rows = reader.dynamic(first, end)
            step(0, rows, numbers, size)
            return (first + size,)

        tf.while_loop(lambda first: first < last, body, (tf.constant(0),), parallel_iterations=1)
