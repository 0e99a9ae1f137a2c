"""Draft of a sweep on a folder of images."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tune_tf.errors import WorkloadError
from tune_tf.scaffold.draft import SHARES, Draft, Line, abbreviate, scalar, sweep_name
from tune_tf.workloads.image_folder import ImageFiles

_SAMPLE_SIZE = 50  # images, evenly spaced
_MAX_SIDE = 128  # pixels; larger sizes are slow and can be set by hand
_GREY = ("1", "L", "LA")


def images_draft(path: Path, path_text: str) -> Draft:
    """Return the draft for a folder with one subfolder of images per class.

    Raises:
        WorkloadError: The folder is invalid or holds no readable image.
    """
    files = ImageFiles.in_folder(path)
    train = files.files["train"]
    height, width, is_grey = _measure_images(train[:: max(1, len(train) // _SAMPLE_SIZE)], path)
    largest = max(height, width)
    shrunk = min(1.0, _MAX_SIDE / largest)
    size = [max(1, round(height * shrunk)), max(1, round(width * shrunk))]
    data = [
        Line("path", scalar(path_text), "one folder per class; relative to this file's folder"),
        Line(
            "image_size",
            str(size[0]) if size[0] == size[1] else str(size),
            f"pixels; the images have about {height} x {width}",
        ),
        Line("channels", "1" if is_grey else "3", "1 for greyscale images, 3 for colour"),
        Line("augment", "false", "true: new random shifts and flips every epoch"),
        Line("flip", "false", "if left and right differ, as in writing", is_commented_out=True),
    ]
    if "validation" not in files.files:
        data += SHARES[:1] if "test" in files.files else SHARES
    name = path.resolve().name
    return Draft(
        name=sweep_name(name),
        description=f"A convolutional network on the {len(train):,} images of {name}, "
        f"{len(files.classes)} classes: {abbreviate(files.classes)}.",
        workload="tune_tf.workloads.image_folder:ImageFolderCNN",
        data=tuple(data),
        task="classification",
        space=(
            Line("filters", "{choice: [8, 16, 32]}", "of the first convolution"),
            Line("batch_norm", "{choice: [false, true]}"),
            Line("dropout", "{uniform: [0.0, 0.5, 0.1]}"),
        ),
        num_rows=len(train),
        inputs=(f"images: uint8 of shape {[*size, 1 if is_grey else 3]}",),
    )


def _measure_images(paths: Sequence[Path], folder: Path) -> tuple[int, int, bool]:
    """Return the median height and width of images, and whether all are grey.

    Raises:
        WorkloadError: No image is readable.
    """
    from PIL import Image  # naming a workload must not require Pillow

    sizes, modes = [], set()
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes.append(image.size)
                modes.add(image.mode)
        except OSError:
            continue  # the first trial reports it
    if not sizes:
        raise WorkloadError(
            f"{folder}: none of {len(paths)} images can be read, for example {paths[0]}"
        )
    height = round(median(size[1] for size in sizes))
    width = round(median(size[0] for size in sizes))
    return height, width, modes <= {*_GREY}
