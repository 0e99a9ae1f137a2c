"""Batches of a user's ``tf.data.Dataset`` or ``keras.utils.PyDataset``, epoch after epoch."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.rows import Batches, Rows, is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.training.core.seeds import epoch_order, seed_python_and_numpy
from tune_tf.training.input.stream import SAMPLE_ROWS
from tune_tf.workload import Data

_log = logging.getLogger(__name__)


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
        self._name = name
        self._source = source
        self._steps = batches.steps
        self._dataset: Any = None
        self._position: tuple[int, int, int] | None = None  # seed, batch size, next epoch
        self._iterator: Any = None  # of several epochs
        form = _Form(batches, name)
        self._passes = form.passes
        self.is_batched = form.is_batched
        #: First few rows, or as many zeros if their shapes are known.
        self.sample = form.sample
        #: Comparable shapes and types of the batches.
        self.spec = repr(form.element_spec)
        self._num_batches = form.num_batches
        self._num_rows = form.num_rows

    def num_batches(self, size: int) -> int | None:
        """Return the batches of an epoch; None if unknown. ``size`` is for unbatched data sets."""
        if self._steps is not None:
            return self._steps
        if self._num_rows is not None:
            return -(-self._num_rows // size)
        return self._num_batches

    @property
    def is_endless(self) -> bool:
        """Whether one iterator serves all epochs, as the number of batches is unknown."""
        return self._passes == math.inf

    @property
    def steps(self) -> int | None:
        """Batches to train on in an epoch; None for all."""
        return self._steps

    def batches(self, size: int, *, seed: int, epoch: int, shuffled: bool) -> Any:
        """Return an iterator over the batches of an epoch, or of this and later epochs.

        Args:
            size: Rows of a batch of an unbatched data set.
            seed: Seed of the trial.
            epoch: Number of the epoch, from 0.
            shuffled: Whether to shuffle the batches of a ``keras.utils.PyDataset``.
        """
        if self._name == "validation":  # the same rows in all epochs
            is_same = self._position is not None and self._position[:2] == (seed, size)
            epoch = self._position[2] if is_same and self._position else 0
        if self._position != (seed, size, epoch):
            batches = self._source.take(self._name, seed)
            reader = _PyDatasetReader if _is_py_dataset(batches.dataset) else _DatasetReader
            self._dataset = reader(batches, self._name, size)
            self._iterator = None
            for earlier in range(epoch):
                self._begin(seed, earlier, shuffled=shuffled, skip=True)
        self._begin(seed, epoch, shuffled=shuffled)
        self._position = seed, size, epoch + 1
        return self._iterator

    def _begin(self, seed: int, epoch: int, *, shuffled: bool, skip: bool = False) -> None:
        """Set the iterator to the beginning of an epoch, or to its end."""
        self._dataset.begin_epoch(seed, epoch)
        if self._iterator is None or epoch % self._passes == 0:
            self._iterator = self._dataset.iterator(seed, epoch, shuffled=shuffled)
        if skip and self._passes > 1:
            for _ in range(self._steps or 0):
                self._iterator.get_next_as_optional()


class _Form:
    """Form of a data set: shapes, types, and numbers of batches or rows where they are known."""

    def __init__(self, batches: Batches, name: str) -> None:
        dataset = batches.dataset
        self.num_rows: int | None = None
        if _is_py_dataset(dataset):
            self.is_batched = True
            self.num_batches = dataset.num_batches
            first = _py_batch(dataset, 0, name)
            self.element_spec = _common_spec(
                [first, _py_batch(dataset, 1, name)] if self.num_batches != 1 else [first]
            )
            endless = self.num_batches is None
        else:
            self.element_spec = dataset.element_spec
            self.is_batched = _is_batched(self.element_spec)
            count = int(dataset.cardinality())
            endless = count == tf.data.INFINITE_CARDINALITY
            known = count if count >= 0 else None
            self.num_batches, self.num_rows = (known, None) if self.is_batched else (None, known)
        if endless and batches.steps is None:
            setting = "steps_per_epoch" if name == "train" else "validation_steps"
            raise WorkloadError(
                f"Data.{name} never ends: return tune_tf.Data(..., {setting}=100) with the number "
                "of batches of an epoch"
            )
        #: Epochs of ``steps`` batches until the data set is read from its start again.
        self.passes: float = 1
        if batches.steps is not None and name == "train":
            known_batches = self.num_batches
            self.passes = (
                math.inf if known_batches is None else max(1, -(-known_batches // batches.steps))
            )
        self.sample = self._sample(batches, name)

    def _sample(self, batches: Batches, name: str) -> tuple[Any, ...]:
        specs = tf.nest.flatten(self.element_spec)
        rest = [spec.shape[1:] if self.is_batched else spec.shape for spec in specs]
        if all(isinstance(spec, tf.TensorSpec) for spec in specs) and all(
            shape.is_fully_defined() for shape in rest
        ):
            zeros = [
                tf.zeros([SAMPLE_ROWS, *shape], spec.dtype)
                for spec, shape in zip(specs, rest, strict=True)
            ]
            sample = tf.nest.pack_sequence_as(self.element_spec, zeros)
        else:
            sample = first_batch(batches, name)
        return parts_of(_with_weights(sample, batches.class_weight))


class _DatasetReader:
    """Reader of a ``tf.data.Dataset``."""

    def __init__(self, batches: Batches, name: str, size: int) -> None:
        dataset = batches.dataset
        if not _is_batched(dataset.element_spec):
            dataset = dataset.batch(size)
        if batches.class_weight is not None:
            dataset = dataset.map(lambda *batch: _with_weights(batch, batches.class_weight))
        if batches.steps is not None and name == "validation":
            dataset = dataset.take(batches.steps)
        # `fit` makes a second iterator after each epoch whose length it knows, so that rows are
        # shuffled as by `fit` if one more is made here.
        self._skips_one = batches.steps is None and int(dataset.cardinality()) >= 0
        self._dataset = dataset.prefetch(tf.data.AUTOTUNE).with_options(_options(dataset))

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Do nothing."""

    def iterator(self, seed: int, epoch: int, *, shuffled: bool) -> Any:
        """Return an iterator; each follows from those before it."""
        if epoch and self._skips_one:
            iter(self._dataset)
        return iter(self._dataset)


class _PyDatasetReader:
    """Reader of a ``keras.utils.PyDataset``, in as many threads as it has workers."""

    def __init__(self, batches: Batches, name: str, size: int) -> None:
        self._batches = batches
        self._source = source = batches.dataset
        self._name = name
        if source.use_multiprocessing and source.workers > 0:
            _log.warning(
                "%s has use_multiprocessing=True: its %d worker(s) are threads of the trial's "
                "process here",
                type(source).__name__,
                source.workers,
            )
        first = [_py_batch(source, i, name) for i in range(min(2, source.num_batches or 2))]
        self._spec = _common_spec(first)
        self._has_begun = False

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Call the hooks between epochs."""
        if self._has_begun:
            self._source.on_epoch_end()
        self._has_begun = True
        seed_python_and_numpy(seed + epoch)
        self._source.on_epoch_begin()

    def iterator(self, seed: int, epoch: int, *, shuffled: bool) -> Any:
        """Return an iterator over the batches of an epoch."""
        source, count = self._source, self._source.num_batches
        if count is None:
            numbers = tf.data.Dataset.range(2**62)
        else:
            order = epoch_order(seed, epoch, count) if shuffled else np.arange(count)
            numbers = tf.data.Dataset.from_tensor_slices(order.astype(np.int64))
        if self._batches.steps is not None and self._name == "validation":
            numbers = numbers.take(self._batches.steps)
        workers = max(1, source.workers)
        dataset = numbers.map(self._read, workers, deterministic=True).prefetch(
            max(1, source.max_queue_size)
        )
        return iter(dataset.with_options(_options(dataset)))

    def _read(self, number: tf.Tensor) -> Any:
        specs = tf.nest.flatten(self._spec)

        def read(number: Any) -> list[Any]:
            batch = _py_batch(self._source, int(number), self._name)
            tf.nest.assert_same_structure(self._spec, batch)
            return [
                np.asarray(leaf, spec.dtype.as_numpy_dtype)
                for leaf, spec in zip(tf.nest.flatten(batch), specs, strict=True)
            ]

        leaves = tf.numpy_function(read, [number], [spec.dtype for spec in specs])
        for leaf, spec in zip(leaves, specs, strict=True):
            leaf.set_shape(spec.shape)
        batch = tf.nest.pack_sequence_as(self._spec, leaves)
        return _with_weights(batch, self._batches.class_weight)


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


def _py_batch(source: Any, number: int, name: str) -> Any:
    batch = source[number]
    if isinstance(batch, list):
        batch = tuple(batch)
    if not isinstance(batch, tuple | dict | np.ndarray):
        raise WorkloadError(
            f"{type(source).__name__} of Data.{name} must return a tuple (x, y) or "
            f"(x, y, sample_weight) of arrays, not {type(batch).__name__}"
        )
    return tf.nest.map_structure(np.asarray, batch)


def _common_spec(batches: list[Any]) -> Any:
    """Return the spec of batches of any number of rows; sizes that differ are None."""

    def common(*leaves: Any) -> tf.TensorSpec:
        shapes = zip(*(leaf.shape[1:] for leaf in leaves), strict=True)
        sizes = [sizes[0] if len(set(sizes)) == 1 else None for sizes in shapes]
        return tf.TensorSpec([None, *sizes], leaves[0].dtype)

    return tf.nest.map_structure(common, *batches)


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
        batch = tf.nest.map_structure(tf.constant, _py_batch(dataset, 0, name))
    else:
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


def _options(dataset: tf.data.Dataset) -> tf.data.Options:
    """Return options that keep a pipeline on the trial's CPUs, unless the user chose others."""
    options, threads = tf.data.Options(), tf.config.threading.get_intra_op_parallelism_threads()
    chosen = dataset.options()
    if threads and not chosen.threading.private_threadpool_size:
        options.threading.private_threadpool_size = threads
    if threads and not chosen.autotune.cpu_budget:
        options.autotune.cpu_budget = threads
    return options
