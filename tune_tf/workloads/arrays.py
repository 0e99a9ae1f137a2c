"""Workload on arrays in .npz or .npy files."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import ValidationInfo, field_validator

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.array_workload import (
    ArrayProperties,
    ArrayWorkload,
    NamedArray,
    TargetSettings,
    data_of,
    input_dtype,
    target_head,
)
from tune_tf.workloads.settings_workload import FileStamp, Text, by_part, existing_file


class ArraysSettings(TargetSettings):
    """Where arrays are.

    Args:
        path: An .npz file with ``x_train`` and ``y_train`` (or ``x`` and ``y``), and where there
            are such ``x_validation`` (or ``x_val``), ``x_test`` and their ``y``. Example:
            ``digits.npz``.
        x: Instead: an .npy file of inputs, shape ``[rows, ...]``. Example: ``x.npy``.
        y: Its targets. Example: ``y.npy``.
    """

    paths: ClassVar[tuple[str, ...]] = ("path", "x", "y")

    path: Text | None = None
    x: Text | None = None
    y: Text | None = None

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


_Arrays = dict[str, dict[str, "_Array"]]
"""Arrays by ``x`` or ``y`` and part, loaded on demand."""


class ArraysModel(ArrayWorkload[ArraysSettings, _Arrays]):
    """Convolutional network on images, perceptron on all other arrays in files."""

    settings_class = ArraysSettings

    def _read(self) -> tuple[_Arrays, FileStamp]:
        settings = self.settings
        if settings.path is not None:
            path = existing_file(settings.path, "data.path")
            return _npz(path), FileStamp.of([path])
        files = {name: existing_file(getattr(settings, name), f"data.{name}") for name in "xy"}
        arrays = {name: {"train": _Array.in_npy(file)} for name, file in files.items()}
        return arrays, FileStamp.of(files.values())

    def _properties_of(self, source: _Arrays) -> ArrayProperties:
        train = source["x"]["train"]
        for part, x in source["x"].items():
            y = source["y"][part]
            if x.num_rows != y.num_rows:
                raise WorkloadError(
                    f"{x.name} has {x.num_rows} rows and {y.name} has {y.num_rows} rows: each row "
                    "of x needs one of y"
                )
            if not x.num_rows:
                raise WorkloadError(f"{x.name} and {y.name} have no rows")
            if x.shape[1:] != train.shape[1:]:
                raise WorkloadError(
                    f"a row of {x.name} has shape {list(x.shape[1:])}, but a row of "
                    f"{train.name} has {list(train.shape[1:])}: they must be equal"
                )
        dtype = input_dtype(train.dtype, train.name)
        head = target_head(_loaded(source["y"]), self.settings)
        return ArrayProperties(train.shape[1:], dtype, head)

    def _data_of(self, source: _Arrays, config: Config) -> Data:
        xs, ys = _loaded(source["x"]), _loaded(source["y"])
        return data_of(xs, ys, self.properties, self.settings, self.settings.task)


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


def _loaded(arrays: Mapping[str, _Array]) -> dict[str, NamedArray]:
    return {
        part: NamedArray(array.load(), f"{array.name} in {array.path}")
        for part, array in arrays.items()
    }


def _npz(path: Path) -> _Arrays:
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
    xs, ys = (_arrays_by_part(letter, arrays) for letter in "xy")
    missing = [f"{name}_train" for name, parts in (("x", xs), ("y", ys)) if "train" not in parts]
    missing += [f"y_{part}" for part in xs if part not in ys and part != "train"]
    if missing:
        raise WorkloadError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(keys) or 'nothing'}, and "
            "needs x_train and y_train, or x and y"
        )
    return {"x": xs, "y": ys}


def _arrays_by_part(letter: str, arrays: Mapping[str, _Array]) -> dict[str, _Array]:
    unsplit = {"train": arrays[letter]} if letter in arrays else {}
    return unsplit | by_part(arrays, f"{letter}_")


def _header(file: Any) -> tuple[tuple[int, ...], Any]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"its format version is {version}, which only structured arrays need")
    return tuple(shape), dtype
