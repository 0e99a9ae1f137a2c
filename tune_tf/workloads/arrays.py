"""Workload on arrays x and y in .npz or .npy files."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import ValidationInfo, field_validator

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
    SettingsWorkload,
    TaskKind,
    Text,
    by_part,
    existing_file,
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
        x: Instead: an .npy file of inputs, shape ``[rows, ...]``. Example: ``x.npy``.
        y: Its targets. Example: ``y.npy``.
        task: Whether y holds classes, which are whole numbers from 0, or numbers. ``auto``: classes
            if it holds whole numbers with at most 20 values.
    """

    paths: ClassVar[tuple[str, ...]] = ("path", "x", "y")

    path: Text | None = None
    x: Text | None = None
    y: Text | None = None
    task: TaskKind = "auto"

    @field_validator("y")
    @classmethod
    def _check_files(cls, y: str | None, info: ValidationInfo) -> str | None:
        path, x = info.data.get("path"), info.data.get("x")
        if (path is None) != (x is not None and y is not None) or (x is None) != (y is None):
            raise ValueError(
                "and x cannot be combined with path: give either path, an .npz file, or x and y, "
                "two .npy files"
            )
        return y


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
        settings = self.settings
        names = [name for name in settings.paths if getattr(settings, name) is not None]
        files = [existing_file(getattr(settings, name), f"data.{name}") for name in names]
        stamp = stamp_of(files)
        try:
            loaded = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
            if len(files) == 2:
                return {"train": (loaded[0], loaded[1])}, stamp
            with loaded[0] as archive:
                arrays = {
                    f"{name}_train" if name in ("x", "y") else name: archive[name]
                    for name in archive
                }
        except (AttributeError, TypeError, ValueError, OSError) as error:
            raise WorkloadError(
                f"{' or '.join(map(str, files))} cannot be read as arrays: {error}; ragged rows "
                "are objects: give all rows the same shape"
            ) from error
        xs, ys = by_part(arrays, "x_"), by_part(arrays, "y_")
        missing = [] if "train" in xs else ["x_train"]
        missing += [f"y_{part}" for part in {"train": None, **xs} if part not in ys]
        if missing:
            raise WorkloadError(
                f"{files[0]} lacks {', '.join(missing)}; it holds {', '.join(archive.files)}, and "
                "needs x_train and y_train, or x and y"
            )
        return {part: (x, ys[part]) for part, x in xs.items()}, stamp

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
        if is_classification(y, self.settings.task):
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
        is_class = y.dtype.kind in "biu" and y.size == len(y)
        stratified = is_class and is_classification(y, self.settings.task)
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
