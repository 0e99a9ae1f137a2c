"""Workloads on arrays x and y: their validation, split and model."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.head import (
    Head,
    class_numbers,
    format_rows,
    is_classification,
    model_for_shape,
)
from tune_tf.workloads.settings_workload import (
    DataSettings,
    SettingsT,
    SettingsWorkload,
    TaskKind,
    row_splits,
)

Parts = dict[str, tuple[Any, Any]]
"""Inputs and targets by part, at least those of ``train``."""


class TargetSettings(DataSettings):
    """Settings of data with a target y.

    Args:
        task: Whether y holds classes, which are whole numbers from 0, or numbers. ``auto``: classes
            if it holds whole numbers with at most 20 values.
    """

    task: TaskKind = "auto"


@dataclass(frozen=True, eq=False)
class ArrayProperties:
    """Shape and dtype of a row of x, and the output layer of the model."""

    shape: tuple[int, ...]
    dtype: str
    head: Head


class ArrayWorkload(SettingsWorkload[SettingsT, ArrayProperties, Parts]):
    """Base class of workloads on arrays: convolutional network on images, else perceptron.

    Rows of shape ``[height, width, channels]`` or ``[height, width]`` are images. Bytes (uint8) are
    scaled to [0, 1] inside the model; other numbers are used as they are. Config values read: those
    of :func:`~tune_tf.workloads.head.convolutions` or :func:`~tune_tf.workloads.head.dense_layers`,
    and of :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        properties = self.properties
        return model_for_shape(properties.shape, properties.dtype, properties.head, config)

    @property
    def _task(self) -> TaskKind:
        return self.settings.task  # type: ignore[attr-defined]

    def _properties_of(self, source: Parts) -> ArrayProperties:
        shape, dtype = source["train"][0].shape[1:], source["train"][0].dtype
        for part, (x, y) in source.items():
            if not x.ndim or not y.ndim or not len(x) or len(x) != len(y):
                raise WorkloadError(
                    f"x of {part} has the shape {list(x.shape)} and y {list(y.shape)}, but each "
                    "row of x needs one of y, and there must be at least one"
                )
            if x.shape[1:] != shape:
                raise WorkloadError(
                    f"a row of x of {part} has the shape {list(x.shape[1:])}, but one of train has "
                    f"{list(shape)}: they must be equal"
                )
            if x.dtype.kind not in "biuf":
                raise WorkloadError(f"x of {part} holds {x.dtype}, but a model takes numbers")
        y = source["train"][1]
        if is_classification(y, self._task):
            highest = max(class_numbers(y, part).max() for part, (_, y) in source.items())
            head = Head(int(highest) + 1)
            if head.num_classes == 1:
                raise WorkloadError("y holds only one class: there is nothing to learn")
        else:
            rows = self._rows_by_part(source).get("train", slice(None))
            head = Head.of_numbers(_numbers(y, "train")[rows])
        return ArrayProperties(shape, "uint8" if dtype == np.uint8 else "float32", head)

    def _data_of(self, source: Parts, config: Config) -> Data:
        convert = _numbers if self.properties.head.num_classes is None else class_numbers
        parts: dict[str, Any] = {}
        for part, (x, y) in source.items():
            if x.dtype.kind == "f":
                _refuse_non_finite(x, f"x of {part}")
            parts[part] = x.astype(self.properties.dtype, copy=False), convert(y, part)
        x, y = parts["train"]
        parts |= {part: (x[rows], y[rows]) for part, rows in self._rows_by_part(source).items()}
        return Data(**parts)

    def _rows_by_part(self, source: Parts) -> dict[str, Any]:
        """Return the rows of ``train`` that each part gets; empty if nothing is to be split."""
        y = source["train"][1]
        stratified = y.dtype.kind in "biu" and y.size == len(y) and is_classification(y, self._task)
        return row_splits(len(y), self.settings, y.reshape(-1) if stratified else None, source)


def _numbers(y: Any, part: str) -> Any:
    if y.dtype.kind not in "biuf" or y.ndim > 2:
        raise WorkloadError(
            f"y of {part} is {y.dtype} of shape {list(y.shape)}, but numbers to predict need shape "
            "[rows] or [rows, numbers]"
        )
    _refuse_non_finite(y, f"y of {part}")
    return y.astype(np.float32)


def _refuse_non_finite(values: Any, where: str) -> None:
    wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if wrong.any():
        raise WorkloadError(
            f"{where} holds NaN or infinity in {format_rows(wrong)}: fix or remove these rows"
        )
