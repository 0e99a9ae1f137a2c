"""Workload on JPEG and PNG files in one folder per class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field

from tune_tf.data.prepared_rows import prepared
from tune_tf.errors import WorkloadError
from tune_tf.validation import short_repr
from tune_tf.workload import Config, Data
from tune_tf.workloads.head import Head, model_for_shape
from tune_tf.workloads.settings_workload import (
    DataSettings,
    FileStamp,
    SettingsWorkload,
    Text,
    by_part,
    missing_path_error,
    row_splits,
)

_SUFFIXES = (".jpg", ".jpeg", ".png")


def _size(value: Any) -> Any:
    sides = (value, value) if isinstance(value, int) else value
    is_pair = isinstance(sides, list | tuple) and len(sides) == 2
    if not is_pair or any(type(side) is not int or side < 1 for side in sides):
        raise ValueError(
            f"must be a side in pixels, like 64, or [height, width], not {short_repr(value)}"
        )
    return tuple(sides)


class ImageFolderSettings(DataSettings):
    """Where images are, and what they become.

    Args:
        path: A folder that holds a folder for each class; or ``train``, ``validation`` and ``test``
            that do. Example: ``flowers``.
        image_size: Pixels of a side, or ``[height, width]``; a parameter ``image_size`` of the
            search space wins.
        channels: 1 for grey, 3 for colours.
        augment: Whether training images are flipped and shifted at random, anew every epoch.
        flip: Whether augmentation flips them left to right; not for writing.
        max_shift: Maximum shift of augmentation, as a share of a side.
        on_bad_record: Whether a file that is no image ends the sweep or is left out and reported.
    """

    path: Text
    image_size: Annotated[tuple[int, int], BeforeValidator(_size)] = (64, 64)
    channels: Literal[1, 3] = 3
    augment: bool = False
    flip: bool = True
    max_shift: Annotated[float, Field(ge=0, lt=1)] = 0.1
    on_bad_record: Literal["raise", "skip"] = "raise"


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Sorted names of class folders, and the files with their class numbers by part.

    All files are under ``train`` if the folder has no parts.
    """

    classes: tuple[str, ...]
    parts: dict[str, tuple[tuple[Path, int], ...]]

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Return the files of a folder with one folder per class, or with such folders of parts.

        Raises:
            WorkloadError: The folder is missing, has fewer than two classes, a class without
                images, images outside of a class, or a class that is missing from ``train``.
        """
        if not folder.exists():
            raise missing_path_error(f"data.path: there is no folder {folder}")
        if not folder.is_dir():
            raise WorkloadError(
                f"data.path: {folder} is a file: name the folder that holds one folder per class"
            )
        folders = by_part({each.name.lower(): each for each in _subfolders(folder)})
        if "train" not in folders:
            folders = {"train": folder}
        classes = tuple(each.name for each in _subfolders(folders["train"]))
        if len(classes) < 2:
            raise WorkloadError(
                f"{folders['train']} holds {len(classes)} class folder(s), but there must be at "
                "least two, each with the images of its class"
            )
        parts = {part: _labelled_files(each, classes, folders) for part, each in folders.items()}
        return cls(classes, parts)


def _labelled_files(
    folder: Path, classes: tuple[str, ...], folders: dict[str, Path]
) -> tuple[tuple[Path, int], ...]:
    loose = [each for each in folder.iterdir() if _is_image(each)]
    if loose:
        raise WorkloadError(
            f"{folder} holds {len(loose)} image(s) outside a class folder, such as "
            f"{loose[0].name}: put each into the folder of its class"
        )
    labelled: list[tuple[Path, int]] = []
    for each in _subfolders(folder):
        if each.name not in classes:
            raise WorkloadError(
                f"{folder} has a class {each.name!r} that is missing in {folders['train']}, whose "
                f"classes are {', '.join(classes)}"
            )
        files = sorted(path for path in each.rglob("*") if _is_image(path))
        if not files:
            raise WorkloadError(
                f"the class folder {each} holds no images ({', '.join(_SUFFIXES)}): fill it or "
                "remove it"
            )
        labelled += [(path, classes.index(each.name)) for path in files]
    if not labelled:
        raise WorkloadError(f"{folder} holds no class folder with images")
    return tuple(labelled)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(
        each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")
    )


def _is_image(path: Path) -> bool:
    is_hidden = path.name.startswith(".")
    return path.suffix.lower() in _SUFFIXES and not is_hidden and path.is_file()


@dataclass(frozen=True)
class ImageDecoder:
    """Decoder of an image file: upright, with a fixed size and 1 (grey) or 3 (RGB) channels."""

    height: int
    width: int
    channels: int

    def __call__(self, path: Path) -> "np.ndarray[Any, Any]":
        """Return a file as uint8 of shape ``[height, width, channels]``.

        Raises:
            OSError: The file is not a complete image.
            ValueError: The image has more than 8 bits per channel.
        """
        from PIL import Image, ImageOps  # late: naming a workload needs no Pillow

        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise ValueError(
                    f"has more than 8 bits per channel (mode {opened.mode}): convert it to 8 bits"
                )
            image = ImageOps.exif_transpose(opened).convert("L" if self.channels == 1 else "RGB")
        if image.size != (self.width, self.height):
            image = image.resize((self.width, self.height), Image.Resampling.BILINEAR)
        return np.asarray(image, np.uint8).reshape(self.height, self.width, self.channels)


@dataclass(frozen=True, eq=False)
class ImageProperties:
    """Class names in the order of the model's outputs."""

    classes: tuple[str, ...]


class ImageFolderCNN(SettingsWorkload[ImageFolderSettings, ImageProperties, ImageFiles]):
    """Convolutional network on image files, which are decoded once.

    The input is uint8 of shape ``[rows, height, width, channels]``. Config values read:
    ``image_size`` (default: that of the settings) and those of
    :func:`~tune_tf.workloads.head.convolutions` and
    :func:`~tune_tf.workloads.head.make_optimizer`.
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
            height, width = _size(size)
        except ValueError as error:
            raise WorkloadError(f"image_size of the config {error}") from None
        return height, width

    def _read(self) -> tuple[ImageFiles, FileStamp]:
        files = ImageFiles.in_folder(Path(self.settings.path))
        return files, FileStamp.of(path for part in files.parts.values() for path, _ in part)

    def _properties_of(self, source: ImageFiles) -> ImageProperties:
        return ImageProperties(source.classes)

    def _data_of(self, source: ImageFiles, config: Config) -> Data:
        parts = self._split(source)
        files = [each for part in parts.values() for each in part]
        images = prepared(
            [path for path, _ in files],
            ImageDecoder(*self._image_size(config), self.settings.channels),
            on_bad_record=self.settings.on_bad_record,
            version=self._stamp.digest if self._stamp else "",
        )
        labels = np.array([label for _, label in files], np.int32)[images.kept]
        # The rows are ordered by part, so each part is a slice without a copy.
        ends = np.searchsorted(images.kept, np.cumsum([len(part) for part in parts.values()]))
        data: dict[str, Any] = {}
        start = 0
        for part, end in zip(parts, ends, strict=True):
            if start == end:
                raise WorkloadError(
                    f"{self.settings.path}: none of the {len(parts[part])} files of {part} is an "
                    f"image, such as {images.skipped[0].record}: {images.skipped[0].error}"
                )
            data[part] = (images.rows[start:end], labels[start:end])
            start = end
        return Data(**data)

    def _split(self, source: ImageFiles) -> dict[str, Sequence[tuple[Path, int]]]:
        """Return the files of each part, splitting ``train`` unless validation files exist."""
        files = source.parts["train"]
        labels = np.array([label for _, label in files])
        rows_by_part = row_splits(len(files), self.settings, labels, source.parts)
        return {
            **source.parts,
            **{part: [files[row] for row in rows] for part, rows in rows_by_part.items()},
        }


@dataclass(frozen=True)
class RandomShift:
    """Random flip, and shift by at most a share of a side, that repeats an image's edge pixels."""

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

        limit = int(side * self.max_shift)
        shift = tf.random.stateless_uniform([], seed, -limit, limit + 1, tf.int32)
        return tf.clip_by_value(tf.range(side) + shift, 0, side - 1)
