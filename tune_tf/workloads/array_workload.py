"""Workloads on arrays x and y: their validation, split and model."""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

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
    SourceT,
    TaskKind,
    row_splits,
)

_BLOCK_ROWS = 4096


class NamedArray(NamedTuple):
    """Array with rows on the first axis, and its name in messages."""

    values: Any
    name: str


class TargetSettings(DataSettings):
    """Settings of data with a target y.

    Args:
        task: Whether y holds classes or numbers. ``auto``: classes if it holds whole numbers with
            at most 20 values.
        num_classes: Classes that there are, 0 to ``num_classes - 1``; None for as many as the
            highest in y says. Example: ``10``.
    """

    task: TaskKind = "auto"
    num_classes: Annotated[int, Field(ge=2)] | None = None


@dataclass(frozen=True, eq=False)
class ArrayProperties:
    """Shape and dtype of a row of x, and the output layer of the model."""

    shape: tuple[int, ...]
    dtype: str
    head: Head


class ArrayWorkload(SettingsWorkload[SettingsT, ArrayProperties, SourceT]):
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


def input_dtype(dtype: Any, where: str) -> str:
    """Return the dtype of x in training: uint8 stays, all other numbers become float32.

    Raises:
        WorkloadError: The values are not numbers.
    """
    if dtype.kind == "O":
        raise WorkloadError(
            f"{where} holds objects: its rows are ragged or hold text; all must have the same shape"
        )
    if dtype.kind not in "biuf":
        raise WorkloadError(f"{where} holds {dtype}, but a model takes numbers")
    return "uint8" if dtype == np.uint8 else "float32"


def target_head(ys: dict[str, NamedArray], settings: TargetSettings) -> Head:
    """Return the output layer for targets by part; at least ``train``.

    Raises:
        WorkloadError: A target does not fit the task.
    """
    y, name = ys["train"]
    num_classes = settings.num_classes
    if not is_classification(y, "classification" if num_classes else settings.task):
        rows = _split(ys, settings, settings.task).get("train", slice(None))
        return Head.of_numbers(_numbers(y, name)[rows])
    highest = max(class_numbers(*target, num_classes)[1] for target in ys.values())
    return Head(num_classes or highest)


def data_of(
    xs: dict[str, NamedArray],
    ys: dict[str, NamedArray],
    properties: ArrayProperties,
    settings: DataSettings,
    task: TaskKind,
) -> Data:
    """Return the data sets of inputs and targets by part.

    Raises:
        WorkloadError: x contains NaN or infinity; names array and rows.
    """
    num_classes = properties.head.num_classes
    parts: dict[str, Any] = {}
    for part, (x, name) in xs.items():
        _refuse_non_finite(x, name)
        if num_classes is None:
            y = _numbers(*ys[part])
        else:
            y, _ = class_numbers(*ys[part], num_classes)
        parts[part] = (np.asarray(x).astype(properties.dtype, copy=False), y)
    x, y = parts["train"]
    parts |= {part: (x[rows], y[rows]) for part, rows in _split(ys, settings, task).items()}
    return Data(**parts)


def _split(ys: dict[str, NamedArray], settings: DataSettings, task: TaskKind) -> dict[str, Any]:
    """Return the rows of ``train`` that each part gets; empty if nothing is to be split."""
    y = ys["train"].values
    stratified = y.dtype.kind in "biu" and y.size == len(y) and is_classification(y, task)
    return row_splits(len(y), settings, y.reshape(-1) if stratified else None, ys)


def _numbers(y: Any, where: str) -> Any:
    if y.dtype.kind not in "biuf" or y.ndim > 2:
        raise WorkloadError(
            f"{where} is {y.dtype} of shape {list(y.shape)}, but numbers to predict need shape "
            "[rows] or [rows, numbers]"
        )
    _refuse_non_finite(y, where)
    return y.astype(np.float32)


def _refuse_non_finite(values: Any, where: str) -> None:
    if values.dtype.kind != "f":
        return
    wrong = np.zeros(len(values), bool)
    for start in range(0, len(values), _BLOCK_ROWS):  # a mask of all would take much memory
        block = np.asarray(values[start : start + _BLOCK_ROWS])
        wrong[start : start + len(block)] = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
    if wrong.any():
        raise WorkloadError(
            f"{where} holds NaN or infinity in {format_rows(wrong)}: fix or remove these rows"
        )
