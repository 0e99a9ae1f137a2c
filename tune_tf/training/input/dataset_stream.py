"""Batches of a user's ``tf.data.Dataset``, epoch after epoch."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.rows import Batches, Rows, is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.training.input.array_stream import prefetched
from tune_tf.workload import Data

SAMPLE_ROWS = 2
"""Rows that are read before training."""


class DatasetSource:
    """Loader of the data sets of a trial, anew for each trial.

    A data set keeps the state of its random operations, so one that another trial has read would
    continue with other rows than in a fresh process.

    Args:
        rows: Data sets that were loaded for the trial with a seed.
        seed: That seed.
        load: Returns new data sets for a seed.
    """

    def __init__(self, rows: Rows, seed: int | None, load: Callable[[int], Rows]) -> None:
        self._load = load
        self._seed = seed
        self._unread = {"train": rows.train, "validation": rows.validation}

    def take(self, name: str, seed: int) -> Batches:
        """Return the data set ``name`` of :class:`tune_tf.Data` that nobody has read yet."""
        if seed != self._seed or name not in self._unread:
            rows = self._load(seed)
            self._seed = seed
            self._unread = {"train": rows.train, "validation": rows.validation}
        batches = self._unread.pop(name)
        if not isinstance(batches, Batches):
            raise WorkloadError(
                f"load_data returned a data set as Data.{name} at first, and now a "
                f"{type(batches).__name__}: return the same kind for the same config"
            )
        return batches


class DatasetStream:
    """Reader of a data set's batches, which repeats an epoch exactly for a seed and number.

    Args:
        batches: The data set, for its form; it is not read.
        name: Its name in :class:`tune_tf.Data`.
        source: Source of the data set that is read.

    Raises:
        WorkloadError: The data set has no form or number of batches that can be trained on.
    """

    def __init__(self, batches: Batches, name: str, source: DatasetSource) -> None:
        dataset, steps = batches.dataset, batches.steps
        if _is_py_dataset(dataset):
            raise WorkloadError(
                f"Data.{name} is a {type(dataset).__name__}, whose batches Python makes one by one:"
                ' use loop="fit" for this workload, or a tf.data.Dataset'
            )
        count = int(dataset.cardinality())
        if count == tf.data.INFINITE_CARDINALITY and steps is None:
            setting = "steps_per_epoch" if name == "train" else "validation_steps"
            raise WorkloadError(
                f"Data.{name} never ends: return tune_tf.Data(..., {setting}=100) with the number "
                "of batches of an epoch"
            )
        #: Batches to train on in an epoch; None for all.
        self.steps = steps
        self._name = name
        self._source = source
        self._dataset: Any = None
        self._position: tuple[int, int, int] | None = None  # seed, batch size, next epoch
        self._iterator: Any = None  # of several epochs
        self.is_batched = _is_batched(dataset.element_spec)
        #: Comparable shapes and types of the batches.
        self.spec = repr(dataset.element_spec)
        #: First few rows, or as many zeros if their shapes are known.
        self.sample = _sample(batches, name)
        self._length = count if count >= 0 else None  # in batches, or in rows without batches
        # Epochs of ``steps`` batches until the data set is read from its start again.
        self._passes: float = 1
        if steps is not None and name == "train":
            length = self._length if self.is_batched else None
            self._passes = math.inf if length is None else max(1, -(-length // steps))

    def num_batches(self, size: int) -> int | None:
        """Return the batches of an epoch; None if unknown. ``size`` is for unbatched data sets."""
        if self.steps is not None:
            return self.steps
        if self._length is None or self.is_batched:
            return self._length
        return -(-self._length // size)

    @property
    def is_endless(self) -> bool:
        """Whether one iterator serves all epochs, as the number of batches is unknown."""
        return self._passes == math.inf

    def batches(self, size: int, *, seed: int, epoch: int) -> Any:
        """Return an iterator over the batches of an epoch, or of this and later epochs.

        Args:
            size: Rows of a batch of an unbatched data set.
            seed: Seed of the trial.
            epoch: Number of the epoch, from 0.
        """
        if self._name == "validation":  # the same rows in all epochs
            is_same = self._position is not None and self._position[:2] == (seed, size)
            epoch = self._position[2] if is_same and self._position else 0
        if self._position != (seed, size, epoch):
            self._dataset = _prepared(self._source.take(self._name, seed), self._name, size)
            self._iterator = None
            for earlier in range(epoch):
                self._begin(earlier)
                for _ in range((self.steps or 0) if self._passes > 1 else 0):
                    self._iterator.get_next_as_optional()
        self._begin(epoch)
        self._position = seed, size, epoch + 1
        return self._iterator

    def _begin(self, epoch: int) -> None:
        """Set the iterator to the beginning of an epoch."""
        if self._iterator is not None and epoch % self._passes:
            return
        if epoch and self.steps is None and int(self._dataset.cardinality()) >= 0:
            # `fit` makes a second iterator after each epoch whose length it knows, so that rows are
            # shuffled as by `fit` if one more is made here.
            iter(self._dataset)
        self._iterator = iter(self._dataset)


def _sample(batches: Batches, name: str) -> tuple[Any, ...]:
    spec = batches.dataset.element_spec
    specs = tf.nest.flatten(spec)
    rest = [each.shape[1:] if _is_batched(spec) else each.shape for each in specs]
    if all(isinstance(each, tf.TensorSpec) for each in specs) and all(
        shape.is_fully_defined() for shape in rest
    ):
        zeros = [
            tf.zeros([SAMPLE_ROWS, *shape], each.dtype)
            for each, shape in zip(specs, rest, strict=True)
        ]
        sample = tf.nest.pack_sequence_as(spec, zeros)
    else:
        sample = first_batch(batches, name)
    return parts_of(_with_weights(sample, batches.class_weight))


def _prepared(batches: Batches, name: str, size: int) -> tf.data.Dataset:
    """Return a data set as it is read, in batches."""
    dataset = batches.dataset
    if not _is_batched(dataset.element_spec):
        dataset = dataset.batch(size)
    if batches.class_weight is not None:
        dataset = dataset.map(lambda *batch: _with_weights(batch, batches.class_weight))
    if batches.steps is not None and name == "validation":
        dataset = dataset.take(batches.steps)
    return prefetched(dataset)


def parts_of(batch: Any) -> tuple[Any, ...]:
    """Return a batch as a tuple ``(x[, y[, sample_weight]])``, as Keras does."""
    return batch if isinstance(batch, tuple) else (batch,)


def brings_batches(data: Data) -> bool:
    """Return whether no part of the data is batched by ``global_batch_size``."""
    parts = [part for part in (data.train, data.validation) if part is not None]
    return all(
        is_dataset(part) and (_is_py_dataset(part) or _is_batched(part.element_spec))
        for part in parts
    )


def _is_py_dataset(dataset: Any) -> bool:
    return isinstance(dataset, keras.utils.PyDataset)


def _is_batched(element_spec: Any) -> bool:
    """Return whether all parts of an element have rows on a first axis of one length."""
    shapes = [spec.shape for spec in tf.nest.flatten(element_spec)]
    if any(shape.rank == 0 for shape in shapes):
        return False
    return len({shape[0] for shape in shapes if shape.rank}) == 1


def first_batch(batches: Batches, name: str) -> Any:
    """Return the first batch, or the first rows of a data set without batches."""
    dataset = batches.dataset
    if _is_py_dataset(dataset):
        return tf.nest.map_structure(tf.convert_to_tensor, dataset[0])
    is_batched = _is_batched(dataset.element_spec)
    batch = next(iter(dataset if is_batched else dataset.batch(SAMPLE_ROWS)), None)
    if batch is None:
        raise WorkloadError(f"Data.{name} is empty: load_data returned no rows")
    return batch


def _with_weights(batch: Any, class_weight: Mapping[int, float] | None) -> Any:
    """Return a batch with the weight of each row's class, as ``fit`` computes it."""
    if class_weight is None:
        return batch
    if not isinstance(batch, tuple) or len(batch) != 2 or not tf.is_tensor(batch[1]):
        raise WorkloadError(
            "class_weight needs batches (x, y) with a single output: let them be "
            "(x, y, sample_weight) instead"
        )
    labels = batch[1]
    if labels.shape.rank is not None and labels.shape.rank > 1:
        labels = tf.argmax(labels, -1) if labels.shape[-1] != 1 else labels[..., 0]
    labels = tf.cast(tf.round(labels) if labels.dtype.is_floating else labels, tf.int64)
    table = np.ones(max(class_weight, default=0) + 2, keras.config.floatx())  # last: other labels
    for label, weight in class_weight.items():
        table[label] = weight
    return (*batch, tf.gather(table, tf.minimum(labels, len(table) - 1)))
