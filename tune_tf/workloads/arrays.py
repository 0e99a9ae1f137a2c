"""Workload on arrays in .npz or .npy files."""

from typing import ClassVar

import numpy as np
from pydantic import ValidationInfo, field_validator

from tune_tf.errors import WorkloadError
from tune_tf.workloads.array_workload import ArrayWorkload, Parts, TargetSettings
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


class ArraysModel(ArrayWorkload[ArraysSettings]):
    """Convolutional network on images, perceptron on all other arrays in files."""

    settings_class = ArraysSettings

    def _read(self) -> tuple[Parts, FileStamp]:
        settings = self.settings
        names = [name for name in settings.paths if getattr(settings, name) is not None]
        files = [existing_file(getattr(settings, name), f"data.{name}") for name in names]
        stamp = FileStamp.of(files)
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
