"""Workload on image files in one folder per class."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator

from tune_tf.errors import WorkloadError, first_line
from tune_tf.validation import short_repr
from tune_tf.workload import Config
from tune_tf.workloads.head import Head, model_for_shape
from tune_tf.workloads.settings_workload import (
    DataSettings,
    SettingsWorkload,
    by_part,
    stamp_of,
)

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


def _size(value: Any) -> tuple[int, int]:
    sides = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):
        raise ValueError(
            "must be a side in pixels, like image_size: 64, or [height, width], not "
            f"{short_repr(value)}"
        )
    return sides


class ImageFolderSettings(DataSettings):
    """Where images are, and what they become.

    Args:
        path: A folder that holds a folder for each class; or ``train``, ``validation`` and ``test``
            that do. Example: ``flowers``.
        image_size: Pixels of a side, or ``[height, width]``; a parameter ``image_size`` of the
            search space wins.
        channels: 1 for grey, 3 for colours.
        augment: Whether training images are flipped and shifted at random, by up to a tenth of a
            side, anew every epoch.
        flip: Whether augmentation flips them left to right; not for writing.
    """

    image_size: Annotated[tuple[int, int], BeforeValidator(_size)] = (64, 64)
    channels: Literal[1, 3] = 3
    augment: bool = False
    flip: bool = True


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Sorted names of class folders, and folders and files by part.

    All files are under ``train`` if the folder has no parts.
    """

    classes: tuple[str, ...]
    folders: dict[str, Path]
    files: dict[str, tuple[Path, ...]]

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Return the files of a folder with one folder per class, or with such folders of parts.

        Raises:
            WorkloadError: The folder has fewer than two classes, a class without images, or parts
                with other classes.
            OSError: There is no such folder.
        """
        folders = by_part({name.lower(): each for name, each in _subfolders(folder).items()})
        if "train" not in folders:
            folders = {"train": folder}
        classes = tuple(_subfolders(folders["train"]))
        if len(classes) < 2:
            raise WorkloadError(
                f"{folders['train']} holds {len(classes)} class folder(s), but there must be at "
                "least two, each with the images of its class"
            )
        if others := [each for each in folders.values() if tuple(_subfolders(each)) != classes]:
            raise WorkloadError(
                f"{others[0]} has the class folders {', '.join(_subfolders(others[0]))}, but "
                f"{folders['train']} has {', '.join(classes)}: give both the same, empty ones if "
                "need be"
            )
        files = {
            part: tuple(path for name in classes for path in _images_in(each / name))
            for part, each in folders.items()
        }
        if empty := [name for name in classes if not _images_in(folders["train"] / name)]:
            raise WorkloadError(
                f"the class folder {folders['train'] / empty[0]} holds no images "
                f"({', '.join(_SUFFIXES)}): fill it or remove it"
            )
        return cls(classes, folders, files)


def _subfolders(folder: Path) -> dict[str, Path]:
    found = sorted(each for each in folder.iterdir() if each.is_dir())
    return {each.name: each for each in found if not each.name.startswith(".")}


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)


class ImageFolderCNN(SettingsWorkload[ImageFolderSettings, tuple[str, ...], ImageFiles]):
    """Convolutional network on image files, which Keras decodes once.

    Its ``properties`` are the names of the classes, in the order of the model's outputs.

    The input is uint8 of shape ``[rows, height, width, channels]``; scaling and augmentation are
    layers. Config values read: ``image_size`` (default: that of the settings) and those of
    :func:`~tune_tf.workloads.head.convolutions` and
    :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    settings_class = ImageFolderSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        settings, augmentation = self.settings, []
        if settings.augment:
            augmentation = [keras.layers.RandomTranslation(0.1, 0.1, fill_mode="nearest")]
            if settings.flip:
                augmentation.append(keras.layers.RandomFlip("horizontal"))
        shape = (*self._image_size(config), settings.channels)
        head = Head(len(self.properties))
        return model_for_shape(shape, "uint8", head, config, augmentation)

    def _image_size(self, config: Config) -> tuple[int, int]:
        return _size(config.get("image_size") or self.settings.image_size)

    def _read(self) -> tuple[ImageFiles, str]:
        found = ImageFiles.in_folder(Path(self.settings.path))
        return found, stamp_of(path for part in found.files.values() for path in part)

    def _properties_of(self, source: ImageFiles) -> tuple[str, ...]:
        return source.classes

    def _parts_of(self, source: ImageFiles, config: Config) -> dict[str, Any]:
        size = self._image_size(config)
        return {
            part: self._decoded(folder, source.classes, size)
            for part, folder in source.folders.items()
        }

    def _decoded(self, folder: Path, classes: tuple[str, ...], size: tuple[int, int]) -> Any:
        """Return the images of class folders as bytes, and their class numbers as int32."""
        import keras
        import tensorflow as tf

        channels = self.settings.channels
        images = keras.utils.image_dataset_from_directory(
            folder,
            class_names=list(classes),
            color_mode="grayscale" if channels == 1 else "rgb",
            image_size=size,
            batch_size=None,
            shuffle=False,
            verbose=False,
        )
        x = np.empty((len(images.file_paths), *size, channels), np.uint8)
        y = np.empty(len(x), np.int32)
        done = 0
        try:
            for image, label in images:
                x[done], y[done] = np.rint(image), label
                done += 1
        except tf.errors.OpError as error:
            raise WorkloadError(
                f"{images.file_paths[done]} is no image that TensorFlow reads: "
                f"{first_line(error)}: fix or remove it"
            ) from error
        return x, y
