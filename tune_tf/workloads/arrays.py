"""Workload on arrays in .npz or .npy files."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.array_rows import (
    PARTS,
    ArrayProperties,
    array_properties,
    check_lengths,
    data_of,
    input_dtype,
)
from tune_tf.workloads.data_settings import DataSettings, TaskKind, Text
from tune_tf.workloads.file_stamp import FileStamp, existing_file
from tune_tf.workloads.model_family import model_for_shape
from tune_tf.workloads.own_data import OwnData

_KEYS = {
    "train": ("train", ""),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}
"""Suffixes after ``x_`` and ``y_`` in an .npz file; the empty one means plain ``x`` and ``y``."""


class ArraysSettings(DataSettings):
    """Where arrays are, and what is learnt.

    Args:
        path: An .npz file with ``x_train`` and ``y_train`` (or ``x`` and ``y``), and where there
            are such ``x_validation`` (or ``x_val``), ``x_test`` and their ``y``.
        x: Instead: an .npy file of inputs, shape ``[rows, ...]``.
        y: Its targets.
        task: Whether y holds classes or numbers. ``auto``: classes if it holds whole numbers with
            at most 20 values.
        num_classes: Classes that there are, 0 to ``num_classes - 1``; None for as many as the
            highest in y says.
    """

    paths: ClassVar[tuple[str, ...]] = ("path", "x", "y")

    path: Text | None = None
    x: Text | None = None
    y: Text | None = None
    task: TaskKind = "auto"
    num_classes: Annotated[int, Field(ge=2)] | None = None

    @field_validator("y")
    @classmethod
    def _one_way(cls, y: str | None, info: ValidationInfo) -> str | None:
        path, x = info.data.get("path"), info.data.get("x")
        if (path is None) != (x is not None and y is not None) or (x is None) != (y is None):
            raise ValueError(
                "and x cannot be combined with path: give either path, an .npz file, or x and y, "
                "two .npy files"
            )
        return y


@dataclass(frozen=True, eq=False)
class _Stored:
    """Inputs and targets by part, loaded on demand."""

    x: Mapping[str, "_Array"]
    y: Mapping[str, "_Array"]
    stamp: FileStamp


class ArraysModel(OwnData[ArraysSettings, ArrayProperties, _Stored]):
    """Convolutional network on images, perceptron on all other arrays.

    Rows of shape ``[height, width, channels]`` or ``[height, width]`` are images. Bytes (uint8) are
    scaled to [0, 1] inside the model; other numbers are used as they are.

    Config values read: those of :func:`~tune_tf.workloads.model_family.convolutions` or
    :func:`~tune_tf.workloads.model_family.dense_layers`, and of
    :func:`~tune_tf.workloads.head.make_optimizer`.

    Args:
        settings: Fields of :class:`ArraysSettings`.
    """

    settings_class = ArraysSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        properties = self.properties
        return model_for_shape(properties.shape, properties.dtype, properties.head, config)

    @property
    def _place(self) -> str:
        return self.settings.path or f"{self.settings.x} or {self.settings.y}"

    def _read(self) -> _Stored:
        settings = self.settings
        if settings.path is not None:
            path = existing_file(settings.path, "data.path")
            return _npz(path)
        files = {name: existing_file(getattr(settings, name), f"data.{name}") for name in "xy"}
        x, y = ({"train": _Array.in_npy(files[name])} for name in "xy")
        return _Stored(x, y, FileStamp.of(files.values()))

    def _stamp(self, source: _Stored) -> FileStamp:
        return source.stamp

    def _found(self, source: _Stored) -> ArrayProperties:
        for name, x in source.x.items():
            y = source.y[name]
            check_lengths({x.name: x.num_rows, y.name: y.num_rows})
        first = source.x["train"]
        for each in source.x.values():
            if each.shape[1:] != first.shape[1:]:
                raise WorkloadError(
                    f"a row of {each.name} has shape {list(each.shape[1:])}, but a row of "
                    f"{first.name} has {list(first.shape[1:])}: they must be equal"
                )
        return array_properties(
            source.stamp,
            first.shape[1:],
            input_dtype(first.dtype, first.name),
            {name: y.load() for name, y in source.y.items()},
            self.settings,
            task=self.settings.task,
            num_classes=self.settings.num_classes,
            names=_names(source),
        )

    def _data(self, source: _Stored, properties: ArrayProperties, config: Config) -> Data:
        return data_of(
            {name: x.load() for name, x in source.x.items()},
            {name: y.load() for name, y in source.y.items()},
            properties,
            self.settings,
            task=self.settings.task,
            names=_names(source),
        )


@dataclass(frozen=True)
class _Array:
    """Reference to an array in a file; ``key`` is its name in an .npz file, otherwise None."""

    name: str
    path: Path
    key: str | None
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def in_npy(cls, path: Path) -> "_Array":
        try:
            with path.open("rb") as file:
                return cls(path.name, path, None, *_header(file))
        except ValueError as error:
            raise WorkloadError(f"{path} is not an .npy file: {error}") from error

    @property
    def num_rows(self) -> int:
        if not self.shape:
            raise WorkloadError(f"{self.name} in {self.path} is a single number, not rows")
        return self.shape[0]

    def load(self) -> Any:
        try:
            if self.key is None:
                return np.load(self.path, mmap_mode="r", allow_pickle=False)
            with np.load(self.path, allow_pickle=False) as archive:
                return archive[self.key]
        except ValueError as error:  # an array of objects
            raise WorkloadError(
                f"{self.name} in {self.path} cannot be read: {error}; ragged rows are "
                "objects: give all rows the same shape"
            ) from error


def _npz(path: Path) -> _Stored:
    """Return the arrays of an .npz file, reading only their headers."""
    try:
        with zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
            arrays = {}
            for key in keys:
                with archive.open(f"{key}.npy") as file:
                    arrays[key] = _Array(key, path, key, *_header(file))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise WorkloadError(f"{path} is not an .npz file of arrays: {error}") from error
    found: dict[str, dict[str, _Array]] = {"x": {}, "y": {}}
    for part in PARTS:
        for each, letter in ((found["x"], "x"), (found["y"], "y")):
            names = [f"{letter}_{end}" if end else letter for end in _KEYS[part]]
            there = [name for name in names if name in arrays]
            if there:
                each[part] = arrays[there[0]]
    lacking = [f"{letter}_train" for letter in "xy" if "train" not in found[letter]]
    lacking += [f"y_{part}" for part in found["x"] if part not in found["y"] and part != "train"]
    if lacking:
        raise WorkloadError(
            f"{path} lacks {', '.join(lacking)}; it holds {', '.join(keys) or 'nothing'}, and "
            "needs x_train and y_train, or x and y"
        )
    return _Stored(found["x"], found["y"], FileStamp.of([path]))


def _header(file: Any) -> tuple[tuple[int, ...], Any]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"its format version is {version}, which only structured arrays need")
    shape, _, dtype = read[version](file)
    return tuple(shape), dtype


def _names(source: _Stored) -> dict[str, str]:
    xs = {f"x_{name}": f"{x.name} in {x.path}" for name, x in source.x.items()}
    return {**xs, **{name: f"{y.name} in {y.path}" for name, y in source.y.items()}}
