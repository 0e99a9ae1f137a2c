"""Training and validation rows in the memory of a trial's devices."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tune_tf.data.nested import num_bytes
from tune_tf.data.rows import Batches, Rows, is_dataset
from tune_tf.training.input.array_stream import ArrayStream
from tune_tf.training.input.dataset_stream import (
    SAMPLE_ROWS,
    DatasetSource,
    DatasetStream,
    first_batch,
    parts_of,
)
from tune_tf.training.input.reader import is_sparse_or_ragged, rows_between
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Config, Workload

STREAMS = (ArrayStream, DatasetStream)
"""Kinds of rows that are not resident on a device."""

_RESIDENT_SHARE = 0.5
"""Largest share of a device's memory for rows; weights, slots and activations need the rest."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Training and validation rows, resident on every replica's device.

    Args:
        train: Placed ``(x, y[, sample_weight])``; an ``ArrayStream`` of arrays without room there;
            a ``DatasetStream`` for batches of a data set; None if only the row numbers are needed.
        validation: The same for validation, or None.
        sample: First few training rows as plain tensors, after ``per_example``, to build the model.
        spec: Comparable shapes and types.
        per_example: ``PerExample`` of the trial, or None.
    """

    train: Any
    validation: Any
    sample: tuple[Any, ...]
    num_train: int
    num_validation: int
    spec: Any
    per_example: Any = None

    @property
    def parts(self) -> tuple[Any, ...]:
        """Training rows, and validation rows if any."""
        return (self.train,) if self.validation is None else (self.train, self.validation)

    @property
    def is_streamed(self) -> bool:
        """Whether rows are streamed to the devices."""
        return any(isinstance(part, STREAMS) for part in self.parts)

    def batch_size(self, workload: Workload, config: Config) -> int:
        """Return the rows of a batch; 0 if all data sets bring their own batches."""
        parts = [part for part in (self.train, self.validation) if part is not None]
        if parts and all(isinstance(part, DatasetStream) and part.is_batched for part in parts):
            return 0
        return workload.global_batch_size(config)


def place_rows(
    rows: Rows,
    replicas: Replicas | None,
    seed: int | None = None,
    load: Callable[[int], Rows] | None = None,
) -> DeviceRows:
    """Copy rows to the device of every replica; None skips the copy.

    Arrays beyond half of a GPU's memory are streamed, those for validation first.
    Data sets are read anew for each trial: ``load`` returns new ones for a trial's seed, and
    ``seed`` is that of ``rows``.
    """
    source = DatasetSource(rows, seed, load or (lambda seed: rows))
    room = math.inf if replicas is None else room_bytes(replicas)
    train = _place(rows.train, "train", replicas, source, room)
    validation = None
    if rows.validation is not None:
        if not isinstance(train, STREAMS):
            room -= num_bytes(rows.train)
        validation = _place(rows.validation, "validation", replicas, source, room)
    if isinstance(train, DatasetStream):
        sample = train.sample
    else:
        count = min(SAMPLE_ROWS, rows.num_train)
        sample = tf.nest.map_structure(lambda a: tf.constant(a[:count]), rows.train)
    return DeviceRows(
        train=train,
        validation=validation,
        sample=sample,
        num_train=rows.num_train,
        num_validation=rows.num_validation,
        spec=(rows.spec, *(part.spec for part in (train, validation) if isinstance(part, STREAMS))),
    )


def room_bytes(replicas: Replicas) -> float:
    """Return the bytes that rows may take on each device."""
    memory = replicas.devices.memory_bytes
    return math.inf if memory is None else _RESIDENT_SHARE * memory


def first_rows_of(part: Any, name: str, count: int) -> Any:
    """Return the first rows of a part of :class:`tune_tf.Data`.

    An iterable that is no data set returns its first batch.
    """
    if isinstance(part, tuple):
        return keras.tree.map_structure(lambda array: array[:count], part)
    if not is_dataset(part):
        return next(iter(part), None)
    batch = rows_between(first_batch(Batches(part), name), 0, count)
    return tf.nest.map_structure(
        lambda leaf: leaf if is_sparse_or_ragged(leaf) else leaf.numpy(), parts_of(batch)
    )


def _place(
    part: Any, name: str, replicas: Replicas | None, source: DatasetSource, room: float
) -> Any:
    """Return a part as it is read, on the devices if it takes no more bytes than there is room."""
    if isinstance(part, Batches):
        return DatasetStream(part, name, source)
    if replicas is None:
        return None
    if (size := num_bytes(part)) > room:
        text = "Data.%s takes %.1f GB and is streamed to the device, which has room for %.1f GB"
        _log.info(text, name, size / 1e9, room / 1e9)
        return ArrayStream(part)
    return replicas.place(part)
