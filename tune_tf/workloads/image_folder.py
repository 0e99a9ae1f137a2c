"""Workload on JPEG and PNG files in one folder per class."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from tune_tf.config.settings import short_repr
from tune_tf.data.prepare.prepared import prepared
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.data_settings import DataSettings, Text
from tune_tf.workloads.file_stamp import FileStamp
from tune_tf.workloads.head import Head
from tune_tf.workloads.image_files import ImageDecoder, ImageFiles
from tune_tf.workloads.model_family import model_for_shape
from tune_tf.workloads.own_data import DataProperties, OwnData
from tune_tf.workloads.split import Split

_log = logging.getLogger(__name__)


def _size(value: Any) -> Any:
    sides = (value, value) if isinstance(value, int) else value
    right = isinstance(sides, list | tuple) and len(sides) == 2
    if not right or any(type(side) is not int or side < 1 for side in sides):
        raise ValueError(
            f"must be a side in pixels, like 64, or [height, width], not {short_repr(value)}"
        )
    return tuple(sides)


class ImageFolderSettings(DataSettings):
    """Where images are, and what they become.

    Args:
        path: A folder that holds a folder for each class; or ``train``, ``validation`` and ``test``
            that do.
        image_size: Pixels of a side, or ``[height, width]``; a parameter ``image_size`` of the
            search space wins.
        channels: 1 for grey, 3 for colours.
        augment: Whether training images are flipped and shifted at random, anew every epoch.
        flip: Whether they may be flipped left to right then; not for writing.
        max_shift: Most that they are shifted then, as a share of a side.
        on_bad_record: Whether a file that is no image ends the sweep or is left out and told.
    """

    path: Text
    image_size: Annotated[tuple[int, int], BeforeValidator(_size)] = (64, 64)
    channels: Literal[1, 3] = 3
    augment: bool = False
    flip: bool = True
    max_shift: Annotated[float, Field(ge=0, lt=1)] = 0.1
    on_bad_record: Literal["raise", "skip"] = "raise"


@dataclass(frozen=True, eq=False)
class ImageProperties(DataProperties):
    """Class names in the order of the model's outputs."""

    classes: tuple[str, ...]


class ImageFolderCNN(OwnData[ImageFolderSettings, ImageProperties, ImageFiles]):
    """Convolutional network on image files, which are decoded once.

    The input is uint8 of shape ``[rows, height, width, channels]``. Config values read:
    ``image_size`` (default: that of the settings) and those of
    :func:`~tune_tf.workloads.model_family.convolutions` and
    :func:`~tune_tf.workloads.head.make_optimizer`.

    Args:
        settings: Fields of :class:`ImageFolderSettings`.
    """

    settings_class = ImageFolderSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        shape = (*self._image_size(config), self.settings.channels)
        return model_for_shape(shape, "uint8", Head(len(self.properties.classes)), config)

    @property
    def computes_rows(self) -> bool:
        """Whether training images are augmented."""
        return self.settings.augment

    def per_example(self, config: Config, *, training: bool) -> Callable[[Any, Any], Any] | None:
        """Return the augmentation of training images; None if there is none."""
        settings = self.settings
        if not training or not settings.augment:
            return None
        height, width = self._image_size(config)
        return RandomShift(height, width, settings.flip, settings.max_shift)

    def _image_size(self, config: Config) -> tuple[int, int]:
        size = config.get("image_size")
        if size is None:
            return self.settings.image_size
        try:
            height, width = _size(tuple(size) if isinstance(size, list) else size)
        except ValueError as error:
            raise WorkloadError(f"image_size of the config {error}") from None
        return height, width

    def _read(self) -> ImageFiles:
        return ImageFiles.below(Path(self.settings.path))

    def _stamp(self, source: ImageFiles) -> FileStamp:
        return source.stamp

    def _found(self, source: ImageFiles) -> ImageProperties:
        return ImageProperties(source.stamp, source.classes)

    def _data(self, source: ImageFiles, properties: ImageProperties, config: Config) -> Data:
        parts = self._divided(source)
        files = [each for part in parts.values() for each in part]
        made = prepared(
            [path for path, _ in files],
            ImageDecoder(*self._image_size(config), self.settings.channels),
            on_bad_record=self.settings.on_bad_record,
            version=source.stamp.digest,
        )
        labels = np.array([label for _, label in files], np.int32)[made.kept]
        # The rows are ordered by part, so each part is a slice without a copy.
        ends = np.searchsorted(made.kept, np.cumsum([len(part) for part in parts.values()]))
        starts = [0, *ends[:-1]]
        rows: dict[str, Any] = {
            name: (made.rows[start:end], labels[start:end])
            for name, start, end in zip(parts, starts, ends, strict=True)
        }
        for name, (images, _) in rows.items():
            if not len(images):
                raise WorkloadError(
                    f"{self.settings.path}: none of the {len(parts[name])} files of {name} is an "
                    f"image, such as {made.skipped[0].record}: {made.skipped[0].error}"
                )
        return Data(**rows)

    def _divided(self, source: ImageFiles) -> dict[str, list[tuple[Path, int]]]:
        """Return the files of each part, splitting ``train`` unless validation files exist."""
        files = source.parts["train"]
        if "validation" in source.parts:
            return {name: list(part) for name, part in source.parts.items()}
        settings = self.settings
        if "test" in source.parts:
            settings = settings.model_copy(update={"test_share": 0.0})
        split = Split.of(len(files), settings, np.array([label for _, label in files]))
        chosen = {"train": split.train, "validation": split.validation, "test": split.test}
        parts = {name: [files[row] for row in rows] for name, rows in chosen.items() if len(rows)}
        return {**parts, **{n: list(part) for n, part in source.parts.items() if n != "train"}}


@dataclass(frozen=True)
class RandomShift:
    """Random flip and shift of an image that repeats its edge pixels.

    ``max_shift`` is a share of a side.
    """

    height: int
    width: int
    flip: bool
    max_shift: float

    def __call__(self, example: tuple[Any, ...], seed: Any) -> tuple[Any, ...]:
        """Return a row ``(image, label)`` with the augmented image."""
        import tensorflow as tf

        image, *others = example
        vertical, horizontal, mirrored = tf.unstack(tf.random.split(seed, 3))
        rows = self._shifted(self.height, vertical)
        columns = self._shifted(self.width, horizontal)
        if self.flip:
            is_mirrored = tf.random.stateless_uniform([], mirrored) < 0.5
            columns = tf.where(is_mirrored, self.width - 1 - columns, columns)
        return (tf.gather(tf.gather(image, rows), columns, axis=1), *others)

    def _shifted(self, side: int, seed: Any) -> Any:
        import tensorflow as tf

        most = int(side * self.max_shift)
        shift = tf.random.stateless_uniform([], seed, -most, most + 1, tf.int32)
        return tf.clip_by_value(tf.range(side) + shift, 0, side - 1)
