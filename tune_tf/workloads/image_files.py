"""Image files in one folder per class, and their decoding."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workloads.file_stamp import FileStamp

_SUFFIXES = (".jpg", ".jpeg", ".png")
_TRAIN = ("train", "training")
_OTHERS = {"validation": ("validation", "val", "valid"), "test": ("test", "testing")}


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files and their classes.

    Args:
        classes: Sorted names of the class folders; a class number is an index into them.
        parts: ``(path, class number)`` of each file by ``train``, ``validation`` and ``test``; all
            under ``train`` if the folder has no such parts.
    """

    classes: tuple[str, ...]
    parts: dict[str, tuple[tuple[Path, int], ...]]
    stamp: FileStamp

    @classmethod
    def below(cls, folder: Path) -> Self:
        """Return the files of a folder with one folder per class.

        If it contains ``train`` (and ``validation`` and ``test``), those contain the classes.

        Raises:
            WorkloadError: The folder is missing, has fewer than two classes, a class without
                images, images outside of a class, or a class that is missing from ``train``.
        """
        if not folder.is_dir():
            is_file = folder.exists()
            raise WorkloadError(
                f"data.path: {folder} is a file: name the folder that holds one folder per class"
                if is_file
                else f"data.path: there is no folder {folder}; relative paths are relative to the "
                "folder of the sweep file"
            )
        folders = _parts(folder)
        classes = tuple(sorted(each.name for each in _subfolders(folders["train"])))
        if len(classes) < 2:
            raise WorkloadError(
                f"{folders['train']} holds {len(classes)} class folder(s), but there must be at "
                "least two, each with the images of its class"
            )
        parts = {name: _labelled(each, classes, folders) for name, each in folders.items()}
        stamp = FileStamp.of(path for part in parts.values() for path, _ in part)
        return cls(classes, parts, stamp)


def _parts(folder: Path) -> dict[str, Path]:
    below = {each.name.lower(): each for each in _subfolders(folder)}
    train = next((below[name] for name in _TRAIN if name in below), None)
    if train is None:
        return {"train": folder}
    found = {"train": train}
    for part, names in _OTHERS.items():
        there = [below[name] for name in names if name in below]
        if there:
            found[part] = there[0]
    return found


def _labelled(
    folder: Path, classes: tuple[str, ...], folders: dict[str, Path]
) -> tuple[tuple[Path, int], ...]:
    loose = [each for each in folder.iterdir() if _is_image(each)]
    if loose:
        raise WorkloadError(
            f"{folder} holds {len(loose)} image(s) outside a class folder, such as "
            f"{loose[0].name}: put each into the folder of its class"
        )
    found: list[tuple[Path, int]] = []
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
        found += [(path, classes.index(each.name)) for path in files]
    if not found:
        raise WorkloadError(f"{folder} holds no class folder with images")
    return tuple(found)


def _subfolders(folder: Path) -> Iterator[Path]:
    yield from sorted(
        each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")
    )


def _is_image(path: Path) -> bool:
    hidden = path.name.startswith(".")
    return path.suffix.lower() in _SUFFIXES and not hidden and path.is_file()


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
