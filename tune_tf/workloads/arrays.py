"""Workload on arrays x and y in an .npz file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config
from tune_tf.workloads.head import (
    Head,
    class_numbers,
    format_rows,
    is_classification,
    model_for_shape,
)
from tune_tf.workloads.settings_workload import (
    DataSettings,
    SettingsWorkload,
    TaskKind,
    by_part,
    row_splits,
    stamp_of,
)

Parts = dict[str, tuple[Any, Any]]
"""Inputs and targets by part, at least those of ``train``."""


class ArraysSettings(DataSettings):
    """Where arrays are.

    Args:
        path: An .npz file with ``x_train`` and ``y_train`` (or ``x`` and ``y``), and where there
            are such ``x_validation`` (or ``x_val``), ``x_test`` and their ``y``. Example:
            ``digits.npz``.
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


class ArraysModel(SettingsWorkload[ArraysSettings, ArrayProperties, Parts]):
    """Convolutional network on images, perceptron on all other arrays in files.

    Rows of shape ``[height, width, channels]`` or ``[height, width]`` are images. Bytes (uint8) are
    scaled to [0, 1] inside the model; other numbers are used as they are. Config values read: those
    of :func:`~tune_tf.workloads.head.convolutions` or :func:`~tune_tf.workloads.head.dense_layers`,
    and of :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    settings_class = ArraysSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        properties = self.properties
        return model_for_shape(properties.shape, properties.dtype, properties.head, config)

    def _read(self) -> tuple[Parts, str]:
        path = Path(self.settings.path)
        stamp = stamp_of([path])
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {
                    f"{name}_train" if name in ("x", "y") else name: archive[name]
                    for name in archive
                }
        except Exception as error:
            raise WorkloadError(
                f"{path} cannot be read as an .npz file: {error}; ragged rows are objects: give "
                "all rows the same shape; arrays in .npy files become one by numpy.savez(path, "
                "x=x, y=y)"
            ) from error
        xs, ys = by_part(arrays, "x_"), by_part(arrays, "y_")
        if "train" not in xs or xs.keys() != ys.keys():
            raise WorkloadError(
                f"{path} holds {', '.join(archive.files)}, but needs x_train and y_train, or x and "
                "y, and for each other part both x and y"
            )
        for part, x in xs.items():
            y, shape = ys[part], xs["train"].shape[1:]
            if not x.size or x.shape[:1] != y.shape[:1] or x.shape[1:] != shape:
                raise WorkloadError(
                    f"x of {part} has the shape {list(x.shape)} and y {list(y.shape)}, but there "
                    "must be rows, each of x needs one of y, and all must have the shape of those "
                    f"of train, {list(shape)}"
                )
        typed = class_numbers if is_classification(ys["train"], self.settings.task) else _numbers
        return {part: (_inputs(x, part), typed(ys[part], part)) for part, x in xs.items()}, stamp

    def _properties_of(self, source: Parts) -> ArrayProperties:
        x, y = source["train"]
        if y.dtype == np.int32:
            head = Head(1 + int(max(y.max() for _, y in source.values())))
            if head.num_classes == 1:
                raise WorkloadError("y holds only one class: there is nothing to learn")
        else:
            rows = row_splits(len(y), self.settings, parts=source).get("train", slice(None))
            head = Head.of_numbers(y[rows])
        return ArrayProperties(x.shape[1:], x.dtype.name, head)

    def _parts_of(self, source: Parts, config: Config) -> Parts:
        return source


def _inputs(x: Any, part: str) -> Any:
    """Return inputs as bytes if they are, else as float32."""
    if x.dtype.kind not in "biuf":
        raise WorkloadError(f"x of {part} holds {x.dtype}, but a model takes numbers")
    _refuse_non_finite(x, f"x of {part}")
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


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
