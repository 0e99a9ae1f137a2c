"""Outputs of frozen layers for a trial's rows, computed once per node and shared by its trials."""

import contextlib
import functools
import itertools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.digest import digest
from tune_tf.data.node_store import NodeStore
from tune_tf.formatting import bytes_text
from tune_tf.result_keys import WEIGHTS_DIFFER
from tune_tf.training.epoch import TrialInputs
from tune_tf.training.frozen.frozen_layers import (
    FrozenLayers,
    NotSharedError,
    check_outputs,
    find_frozen_layers,
    has_frozen_layers,
)
from tune_tf.training.input.array_stream import ArrayStream
from tune_tf.training.input.dataset_stream import DatasetStream
from tune_tf.training.input.device_rows import DeviceRows, room_bytes
from tune_tf.training.input.reader import rows_between
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.step import trains_by_workload
from tune_tf.workload import Workload

ArrayList = list["np.ndarray[Any, Any]"]

_CHUNK_ROWS = 64
_MAX_VARIANTS = 2
"""Sets of weights of equal layers that a process computes outputs of, before it gives up."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SkippedLayers:
    """Frozen layers of a model that a program skips.

    Args:
        has_mask: As of :func:`check_outputs`.
        structure: Key of the layers and of their connections.
    """

    layers: FrozenLayers
    has_mask: Sequence[bool]
    structure: str

    @property
    def key(self) -> tuple[Any, ...]:
        """Part of the trace that depends on the cut."""
        return (*self.has_mask, len(self.layers.frozen), len(self.layers.tensors))

    def replaced(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the model takes outputs of the layers in place of rows."""
        return self.layers.skipped(self.has_mask)


def shareable_layers(
    workload: Workload, model: keras.Model, rows: DeviceRows, max_bytes: float
) -> FrozenLayers:
    """Return the frozen layers whose outputs trials may share, by shapes and settings.

    The outputs take at most ``max_bytes``.

    Raises:
        NotSharedError: There are none.
    """
    parts = {"train": rows.train, "validation": rows.validation}
    for name, part in parts.items():
        if isinstance(part, DatasetStream):
            raise NotSharedError(
                f"Data.{name} is a data set, which may have other rows in each epoch: return "
                "arrays, or rows of tune_tf.data.prepared"
            )
    if rows.per_example is not None:
        raise NotSharedError("per_example makes other rows in each epoch")
    if trains_by_workload(workload):
        raise NotSharedError(f"{type(workload).__name__}.train_step may use the rows")
    return find_frozen_layers(model, max_bytes / (rows.num_train + rows.num_validation))


class FrozenOutputs:
    """Outputs of the frozen layers of a process's trials.

    Args:
        replicas: Replicas that read the rows.
        shared: Where the processes of the node share the outputs.
    """

    def __init__(self, replicas: Replicas, shared: NodeStore) -> None:
        self._replicas = replicas
        self._shared = shared
        #: Why the last trial shares no outputs, if its model has frozen layers; else empty.
        self.obstacle = ""
        self._content: tuple[DeviceRows, bytes | None] | None = None  # of the last rows
        self._placed: tuple[DeviceRows, str, DeviceRows] | None = None
        self._checked: dict[str, list[bool] | str] = {}
        self._variants: dict[str, set[bytes]] = defaultdict(set)

    def find(
        self, workload: Workload, model: keras.Model, inputs: TrialInputs
    ) -> tuple[SkippedLayers | None, TrialInputs]:
        """Return the frozen layers to skip, if that pays, and inputs with their outputs as rows."""
        rows, self.obstacle = inputs.rows, ""
        try:
            skipped, outputs = self._find(workload, model, rows)
        except NotSharedError as reason:
            if has_frozen_layers(model):
                self.obstacle = str(reason)
            if str(reason) not in self._checked:
                self._checked[str(reason)] = ""
                _log.info("The outputs of frozen layers are not shared: %s", reason)
            return None, inputs
        return skipped, inputs._replace(rows=outputs)

    def _find(
        self, workload: Workload, model: keras.Model, rows: DeviceRows
    ) -> tuple[SkippedLayers, DeviceRows]:
        layers = shareable_layers(workload, model, rows, self._max_bytes(rows))
        structure = layers.structure
        if structure.key is None:
            raise NotSharedError(f"they run {structure.obstacle}, which is not Keras' own")
        has_mask = self._checked_masks(structure.key, layers, rows.sample[0])
        skipped = SkippedLayers(layers, has_mask, structure.key)
        return skipped, self._outputs(skipped, rows, structure.key)

    def outputs(self, skipped: SkippedLayers, rows: DeviceRows) -> DeviceRows | None:
        """Return rows whose inputs are the outputs of frozen layers with their current weights.

        None if the weights differ in each trial.
        """
        try:
            return self._outputs(skipped, rows, skipped.structure)
        except NotSharedError as reason:
            self.obstacle = str(reason)
            return None

    def _outputs(self, skipped: SkippedLayers, rows: DeviceRows, structure: str) -> DeviceRows:
        layers = skipped.layers
        values = [variable.numpy() for variable in layers.weights]
        weights = digest((structure, self._replicas.devices.on_cpu, values))
        content = self._digest(rows)
        if weights is None or content is None:
            raise NotSharedError("the rows cannot be compared")
        key = (weights + content).hex()
        last = self._placed
        if last is not None and last[1] == key and _are_same(last[0], rows):
            return last[2]
        arrays = self._shared.get(
            f"frozen-{key}", lambda: self._compute(skipped, rows, structure, weights)
        )
        unplaced = iter(arrays)
        parts = [self._placed_part(skipped, part, unplaced) for part in rows.parts]
        placed = replace(
            rows,
            train=parts[0],
            validation=parts[1] if len(parts) > 1 else None,
            spec=(rows.spec, *((each.shape, each.dtype.name) for each in arrays)),
            computed_from=rows,
        )
        self._placed = rows, key, placed
        return placed

    def _placed_part(
        self, skipped: SkippedLayers, part: Any, arrays: Iterator[Any]
    ) -> tuple[Any, ...]:
        """Return the next outputs, with the labels of the part, on the devices."""
        num_outputs = len(skipped.has_mask) + sum(skipped.has_mask)
        outputs = self._replicas.place(tuple(itertools.islice(arrays, num_outputs)))
        labels = part[1:] if isinstance(part, tuple) else self._replicas.place(part.arrays[1:])
        return (outputs, *labels)

    def _max_bytes(self, rows: DeviceRows) -> float:
        """Return the bytes that outputs may take; of streamed rows they have to fit the devices."""
        if not rows.is_streamed:
            return self._shared.max_bytes
        resident = [
            self._replicas.first_copy(part) for part in rows.parts if isinstance(part, tuple)
        ]
        labels = [part.tensors[1:] for part in rows.parts if isinstance(part, ArrayStream)]
        return min(self._shared.max_bytes, room_bytes(self._replicas) - _nbytes([resident, labels]))

    def _checked_masks(self, structure: str, layers: FrozenLayers, x: Any) -> list[bool]:
        """Return which outputs have masks, after one check for each structure."""
        if structure not in self._checked:
            try:
                with self._replicas.device_scope():
                    self._checked[structure] = check_outputs(layers, x)
            except (tf.errors.ResourceExhaustedError, MemoryError):
                raise
            except Exception as reason:  # noqa: BLE001  the whole model raises it too, if it matters
                self._checked[structure] = str(reason)
        checked = self._checked[structure]
        if isinstance(checked, str):
            raise NotSharedError(checked)
        return checked

    def _compute(
        self, skipped: SkippedLayers, rows: DeviceRows, structure: str, weights: bytes
    ) -> ArrayList:
        self._variants[structure].add(weights)
        if len(self._variants[structure]) > _MAX_VARIANTS:
            self._checked[structure] = WEIGHTS_DIFFER
            raise NotSharedError(WEIGHTS_DIFFER)
        layers = skipped.layers
        outputs = functools.partial(layers.outputs)  # else TensorFlow warns of many traces
        traced = tf.function(outputs, autograph=False, reduce_retracing=True)

        def compute(x: Any) -> list[Any]:
            with tf.device(self._replicas.devices.names[0]):  # where no rows are read
                return list(traced(x))

        counts = (rows.num_train, rows.num_validation)
        arrays = [
            array
            for part, num_rows in zip(rows.parts, counts, strict=False)
            for array in _collected(self._chunks(compute, part), num_rows)
        ]
        size = bytes_text(sum(each.nbytes for each in arrays))
        text = (
            "The outputs of the frozen layers up to %s take %s and are computed once on this node"
        )
        _log.info(text, layers.name, size)
        return arrays

    def _chunks(self, compute: Callable[[Any], list[Any]], part: Any) -> Iterator[list[Any]]:
        """Yield the outputs for a few rows after others."""
        # Of a stream not the tensors, which TensorFlow would copy to a GPU as a whole.
        x = self._replicas.first_copy(part[0]) if isinstance(part, tuple) else part.arrays[0]
        num_rows = len(tf.nest.flatten(x)[0])
        for begin in range(0, num_rows, _CHUNK_ROWS):
            yield compute(rows_between(x, begin, min(begin + _CHUNK_ROWS, num_rows)))

    def _digest(self, rows: DeviceRows) -> bytes | None:
        if self._content is None or not _are_same(self._content[0], rows):
            contents = [self._content_of(part) for part in rows.parts]
            self._content = rows, None if None in contents else digest(contents)
        return self._content[1]

    def _content_of(self, part: Any) -> bytes | None:
        if isinstance(part, ArrayStream):
            return digest(part.arrays[0])
        x = self._replicas.first_copy(part[0])
        return digest(keras.tree.map_structure(lambda a: a.numpy(), x))


def _are_same(one: DeviceRows, other: DeviceRows) -> bool:
    return one.train is other.train and one.validation is other.validation


def _nbytes(rows: Any) -> int:
    return sum(math.prod(each.shape) * each.dtype.size for each in tf.nest.flatten(rows))


def _collected(chunks: Iterator[list[Any]], num_rows: int) -> ArrayList:
    """Return arrays of all rows from tensors of a few rows after others."""
    arrays: ArrayList = []
    begin = 0
    for chunk in chunks:
        results = [tensor.numpy() for tensor in chunk]
        if not arrays:
            arrays = [np.empty((num_rows, *each.shape[1:]), each.dtype) for each in results]
        for array, result in zip(arrays, results, strict=True):
            array[begin : begin + len(result)] = result
        begin += len(results[0])
    return arrays
