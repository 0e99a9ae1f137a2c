"""Outputs of frozen layers for a trial's rows, computed once per node and shared by its trials."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.digest import digest
from tune_tf.data.node_cache.computed_arrays import ArrayList, ComputedArrays
from tune_tf.formatting import bytes_text
from tune_tf.training.core.epoch import TrialInputs
from tune_tf.training.core.frozen_layers import (
    FrozenLayers,
    NotSharedError,
    check_outputs,
    find_frozen_layers,
)
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.step import trains_by_workload
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.reader import rows_between
from tune_tf.training.reuse.fingerprint import global_settings
from tune_tf.workload import Workload

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
        levels = self.layers.levels
        return (*self.has_mask, *((len(level.frozen), len(level.tensors)) for level in levels))

    def replaced(self) -> contextlib.AbstractContextManager[None]:
        """Return the context in which the model takes outputs of the layers in place of rows."""
        return self.layers.skipped(self.has_mask)


class FrozenOutputs:
    """Outputs of the frozen layers of a process's trials.

    Args:
        replicas: Replicas that read the rows.
        shared: Where the processes of the node share the outputs.
    """

    def __init__(self, replicas: Replicas, shared: ComputedArrays) -> None:
        self._replicas = replicas
        self._shared = shared
        self._content: tuple[DeviceRows, bytes | None] | None = None  # of the last rows
        self._placed: tuple[DeviceRows, str, DeviceRows] | None = None
        self._checked: dict[str, list[bool] | str] = {}
        self._variants: Counter[str] = Counter()

    def find(
        self, workload: Workload, model: keras.Model, inputs: TrialInputs
    ) -> tuple[SkippedLayers | None, TrialInputs]:
        """Return the frozen layers to skip, if that pays, and inputs with their outputs as rows."""
        rows = inputs.rows
        try:
            skipped, outputs = self._find(workload, model, rows)
        except NotSharedError as reason:
            if str(reason) not in self._checked:
                self._checked[str(reason)] = ""
                _log.info("The outputs of frozen layers are not shared: %s", reason)
            return None, inputs
        return skipped, inputs._replace(rows=outputs)

    def _find(
        self, workload: Workload, model: keras.Model, rows: DeviceRows
    ) -> tuple[SkippedLayers, DeviceRows]:
        if rows.is_streamed:
            raise NotSharedError("rows are streamed")
        if rows.per_example is not None:
            raise NotSharedError("per_example makes other rows in each epoch")
        if trains_by_workload(workload):
            raise NotSharedError(f"{type(workload).__name__}.train_step may use the rows")
        num_rows = rows.num_train + rows.num_validation
        layers = find_frozen_layers(model, self._shared.max_bytes / num_rows)
        structure = layers.structure
        if structure.key is None:
            raise NotSharedError(structure.obstacle)
        has_mask = self._checked_masks(structure.key, layers, rows.sample[0])
        skipped = SkippedLayers(layers, has_mask, structure.key)
        return skipped, self._outputs(skipped, rows, structure.key)

    def outputs(self, skipped: SkippedLayers, rows: DeviceRows) -> DeviceRows | None:
        """Return rows whose inputs are the outputs of frozen layers with their current weights.

        None if the weights differ in each trial.
        """
        try:
            return self._outputs(skipped, rows, skipped.structure)
        except NotSharedError:
            return None

    def _outputs(self, skipped: SkippedLayers, rows: DeviceRows, structure: str) -> DeviceRows:
        layers = skipped.layers
        values = [variable.numpy() for variable in layers.variables]
        settings = repr((global_settings(), self._replicas.devices.on_cpu))
        weights = digest((structure, settings, values))
        content = self._digest(rows)
        if weights is None or content is None:
            raise NotSharedError("the rows cannot be compared")
        key = (weights + content).hex()
        last = self._placed
        if last is not None and last[1] == key and _are_same(last[0], rows):
            return last[2]
        arrays = self._shared.get(key, lambda: self._compute(skipped, rows, structure))
        count = len(arrays) // (1 if rows.validation is None else 2)
        placed = replace(
            rows,
            train=(self._place(arrays[:count]), *rows.train[1:]),
            validation=rows.validation and (self._place(arrays[count:]), *rows.validation[1:]),
            spec=(rows.spec, *((each.shape, each.dtype.name) for each in arrays)),
            computed_from=rows,
        )
        self._placed = rows, key, placed
        return placed

    def _place(self, arrays: ArrayList) -> tuple[Any, ...]:
        placed: tuple[Any, ...] = self._replicas.place(tuple(arrays))
        return placed

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

    def _compute(self, skipped: SkippedLayers, rows: DeviceRows, structure: str) -> ArrayList:
        self._variants[structure] += 1
        if self._variants[structure] > _MAX_VARIANTS:
            reason = "the weights differ between trials: load them, or give initializers seeds"
            self._checked[structure] = reason
            raise NotSharedError(reason)
        layers = skipped.layers
        parts = [self._inputs(part) for part in (rows.train, rows.validation) if part]
        spec = keras.tree.map_structure(
            lambda a: tf.TensorSpec((None, *a.shape[1:]), a.dtype), parts[0]
        )
        compute = tf.function(layers.outputs, input_signature=[spec], autograph=False)
        with tf.device(self._replicas.devices.names[0]):
            arrays = [array for x in parts for array in _in_chunks(compute, x)]
        size = bytes_text(sum(each.nbytes for each in arrays))
        text = (
            "The outputs of the frozen layers up to %s take %s and are computed once on this node"
        )
        _log.info(text, layers.name, size)
        return arrays

    def _inputs(self, part: Any) -> Any:
        return self._replicas.first_copy(part[0])

    def _digest(self, rows: DeviceRows) -> bytes | None:
        if self._content is None or not _are_same(self._content[0], rows):
            parts = [self._inputs(part) for part in (rows.train, rows.validation) if part]
            arrays = keras.tree.map_structure(lambda a: a.numpy(), parts)
            self._content = rows, digest(arrays)
        return self._content[1]


def _are_same(one: DeviceRows, other: DeviceRows) -> bool:
    return one.train is other.train and one.validation is other.validation


def _in_chunks(compute: Callable[[Any], Sequence[Any]], x: Any) -> ArrayList:
    """Return the results of a computation on rows, which it gets in parts."""
    num_rows = len(keras.tree.flatten(x)[0])
    arrays: ArrayList = []
    for begin in range(0, num_rows, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS, num_rows)
        results = [tensor.numpy() for tensor in compute(rows_between(x, begin, end))]
        if not arrays:
            arrays = [np.empty((num_rows, *each.shape[1:]), each.dtype) for each in results]
        for array, result in zip(arrays, results, strict=True):
            array[begin:end] = result
    return arrays
