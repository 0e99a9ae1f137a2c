"""Outputs of frozen layers for a trial's rows, computed once per node and shared by its trials."""

import functools
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.digest import digest
from tune_tf.data.node_store import NodeStore
from tune_tf.result_keys import WEIGHTS_DIFFER
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
from tune_tf.training.structure import structure_of
from tune_tf.workload import Workload

_CHUNK_ROWS = 64
_MAX_VARIANTS = 2
"""Sets of weights of equal layers that a process computes outputs of, before it gives up."""

_Outputs = tuple[list[bool], list["np.ndarray[Any, Any]"]]
"""Which outputs have masks; arrays of the outputs and masks of training, then of validation."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class SkippedLayers:
    """Frozen layers of a model that a program skips.

    Args:
        has_mask: As of :func:`check_outputs`.
        weights: Digest of the weights of which the outputs are.
        rows: Rows whose inputs are the outputs.
    """

    layers: FrozenLayers
    has_mask: Sequence[bool]
    weights: bytes | None
    rows: DeviceRows

    @property
    def key(self) -> tuple[Any, ...]:
        """Part of the trace that depends on the cut."""
        return (*self.has_mask, len(self.layers.frozen), len(self.layers.tensors))

    @property
    def is_current(self) -> bool:
        """Whether the weights are those of which the outputs are."""
        return self.weights == _weights(self.layers)


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
        self._rows: DeviceRows | None = None  # of the last trial
        self._content: bytes | None = None  # their digest
        self._placed: dict[str, tuple[list[bool], DeviceRows]] = {}  # of them, by key
        self._variants: dict[str, set[bytes | None]] = defaultdict(set)

    def find(
        self, workload: Workload, model: keras.Model, rows: DeviceRows
    ) -> SkippedLayers | None:
        """Return the frozen layers to skip with the rows to train on, if that pays."""
        self.obstacle = ""
        try:
            return self._find(workload, model, rows)
        except NotSharedError as reason:
            if has_frozen_layers(model):
                self.obstacle = str(reason)
            _log_once(str(reason))
            return None

    def _find(self, workload: Workload, model: keras.Model, rows: DeviceRows) -> SkippedLayers:
        _refuse_other_rows(workload, rows)
        max_bytes = min(self._shared.max_bytes, room_bytes(self._replicas))
        layers = find_frozen_layers(model, max_bytes / (rows.num_train + rows.num_validation))
        structure = structure_of([*map(tuple, layers.frozen), layers.tensors])
        if structure.key is None:
            raise NotSharedError(f"they run {structure.obstacle}, which is not Keras' own")
        if self._rows is None or not _are_same(self._rows, rows):
            inputs = [keras.tree.map_structure(np.asarray, self._inputs(x)) for x in rows.parts]
            self._rows, self._content, self._placed = rows, digest(inputs), {}
        weights = _weights(layers)
        if self._content is None:
            raise NotSharedError("the rows cannot be compared")
        on_cpu = self._replicas.devices.on_cpu
        parts = digest((structure.key, on_cpu, weights, self._content)) or b""
        key = f"frozen-{parts.hex()}"
        if key not in self._placed:
            outputs = self._shared.get(
                key, lambda: self._compute(layers, rows, structure.key or "", weights)
            )
            if isinstance(outputs, str):
                raise NotSharedError(outputs)
            self._placed = {key: (outputs[0], self._place(rows, *outputs))}
        has_mask, placed = self._placed[key]
        return SkippedLayers(layers, has_mask, weights, placed)

    def computed_again(self, skipped: SkippedLayers, rows: DeviceRows) -> SkippedLayers:
        """Return skipped layers with the outputs of their present weights, for one trial alone.

        The graph, which reads the outputs at each call, stays.
        """
        placed = self._place(rows, skipped.has_mask, self._arrays(skipped.layers, rows))
        return replace(skipped, weights=_weights(skipped.layers), rows=placed)

    def _place(
        self, rows: DeviceRows, has_mask: Sequence[bool], arrays: Sequence[Any]
    ) -> DeviceRows:
        """Return the rows with the outputs as inputs, on the devices."""
        num, parts = len(has_mask) + sum(has_mask), []
        for number, part in enumerate(rows.parts):
            outputs = self._replicas.place(tuple(arrays[number * num : (number + 1) * num]))
            labels = part[1:] if isinstance(part, tuple) else self._replicas.place(part.arrays[1:])
            parts.append((outputs, *labels))
        return replace(
            rows,
            train=parts[0],
            validation=parts[1] if len(parts) > 1 else None,
            spec=(rows.spec, *((each.shape, each.dtype.name) for each in arrays)),
        )

    def _compute(
        self, layers: FrozenLayers, rows: DeviceRows, structure: str, weights: bytes | None
    ) -> _Outputs | str:
        """Return the outputs, or why they cannot be shared."""
        self._variants[structure].add(weights)
        if len(self._variants[structure]) > _MAX_VARIANTS:
            raise NotSharedError(WEIGHTS_DIFFER)
        try:
            with self._replicas.device_scope():
                has_mask = check_outputs(layers, rows.sample[0])
        except (tf.errors.ResourceExhaustedError, MemoryError):
            raise
        except Exception as reason:  # noqa: BLE001  the whole model raises it too, if it matters
            return str(reason)
        return has_mask, self._arrays(layers, rows)

    def _arrays(self, layers: FrozenLayers, rows: DeviceRows) -> "list[np.ndarray[Any, Any]]":
        """Return the outputs and masks of training, then of validation."""
        outputs = functools.partial(layers.outputs)  # else TensorFlow warns of many traces
        traced = tf.function(outputs, autograph=False, reduce_retracing=True)

        def compute(x: Any) -> list[Any]:
            with tf.device(self._replicas.devices.names[0]):  # where no rows are read
                return [each.numpy() for each in traced(x)]

        arrays = []
        for part in rows.parts:
            x = self._inputs(part)
            num_rows = len(tf.nest.flatten(x)[0])
            chunks = [
                compute(rows_between(x, begin, min(begin + _CHUNK_ROWS, num_rows)))
                for begin in range(0, num_rows, _CHUNK_ROWS)
            ]
            arrays += [np.concatenate(each) for each in zip(*chunks, strict=True)]
        return arrays

    def _inputs(self, part: Any) -> Any:
        # Of a stream not the tensors, which TensorFlow would copy to a GPU as a whole.
        return (
            part.arrays[0] if isinstance(part, ArrayStream) else self._replicas.first_copy(part)[0]
        )


def _refuse_other_rows(workload: Workload, rows: DeviceRows) -> None:
    """Refuse rows that may be others in each epoch, and code that may use them."""
    for name, part in {"train": rows.train, "validation": rows.validation}.items():
        if isinstance(part, DatasetStream):
            raise NotSharedError(
                f"Data.{name} is a data set, which may have other rows in each epoch: return "
                "arrays, or rows of tune_tf.data.prepared"
            )
    if rows.per_example is not None:
        raise NotSharedError("per_example makes other rows in each epoch")
    if trains_by_workload(workload):
        raise NotSharedError(f"{type(workload).__name__}.train_step may use the rows")


def _weights(layers: FrozenLayers) -> bytes | None:
    return digest([variable.numpy() for variable in layers.weights])


def _are_same(one: DeviceRows, other: DeviceRows) -> bool:
    return one.train is other.train and one.validation is other.validation


@functools.cache
def _log_once(reason: str) -> None:
    _log.info("The outputs of frozen layers are not shared: %s", reason)
