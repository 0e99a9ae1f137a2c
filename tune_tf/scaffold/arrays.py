"""Drafts of sweeps on NumPy arrays and on TFRecord files."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.errors import InvalidSettingsError, WorkloadError, did_you_mean
from tune_tf.scaffold.draft import DENSE_SPACE, Draft, Line, scalar, sweep_name
from tune_tf.workloads.array_rows import ArrayProperties
from tune_tf.workloads.arrays import ArraysModel
from tune_tf.workloads.tfrecords import TFRecordsModel

TFRECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")

_TARGETS = ("label", "labels", "y", "target", "class", "output")
_PICTURES = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
_GZIP = b"\x1f\x8b"


ARRAY_SUFFIXES = (".npz", ".npy")


_SHARES = (
    Line("validation_share", "0.2", "of the rows, if the file does not split them"),
    Line("test_share", "0.1", "no trial sees them: they are for the final model"),
)


def arrays_draft(path: Path, target: str | None, path_text: str) -> Draft:
    """Return the draft for arrays in one .npz file or two .npy files in the same folder.

    The name of the targets' file is by default that of the inputs with ``y`` instead of ``x``.

    Raises:
        InvalidSettingsError: The targets cannot be found.
        WorkloadError: The arrays are invalid.
    """
    if path.suffix.lower() == ".npz":
        if target is not None:
            raise InvalidSettingsError(
                f"--target is for tables, records and .npy files: {path.name} names its own, y"
            )
        workload = ArraysModel(path=str(path))
        places = [Line("path", scalar(path_text), "relative to this file's folder")]
    else:
        y = _targets(path, target)
        workload = ArraysModel(x=str(path), y=str(y))
        places = [
            Line("x", scalar(path_text), "relative to this file's folder"),
            Line("y", scalar(str(Path(path_text).with_name(y.name)))),
        ]
    properties = workload.properties
    return Draft(
        name=sweep_name(path.stem),
        about=f"A network on the rows of {path.name}, each of shape {list(properties.shape)}.",
        workload="tune_tf.workloads.arrays:ArraysModel",
        data=(*places, _task_line(properties), *_SHARES),
        task=properties.head.task,
        space=_space_of(properties),
        inputs=(f"x: {properties.dtype} of shape {list(properties.shape)}",),
    )


def _task_line(properties: ArrayProperties) -> Line:
    count = properties.head.num_classes
    if count is None:
        guessed = "guessed: fractions, or many values; `classification` if these are class numbers"
        return Line("task", "regression", guessed)
    guessed = f"guessed: {count} different integers; `regression` for quantities"
    return Line("task", "classification", guessed)


def _space_of(properties: ArrayProperties) -> tuple[Line, ...]:
    """Return the space besides the optimizer: convolutions for images, else dense layers."""
    is_image = len(properties.shape) in (2, 3)
    filters = Line("filters", "{choice: [8, 16, 32]}", "of the first convolution")
    return (filters, *DENSE_SPACE[1:]) if is_image else DENSE_SPACE


def _targets(path: Path, target: str | None) -> Path:
    there = sorted(each.name for each in path.parent.glob("*.npy") if each.name != path.name)
    wanted = target or path.name.replace("x", "y", 1).replace("X", "y", 1)
    if wanted in there:
        return path.with_name(wanted)
    text = f"there are {', '.join(there)}" if there else "there is no other .npy file"
    if target is None:
        raise InvalidSettingsError(
            f"which file holds the targets of {path.name}? Pass --target FILE.npy; beside it {text}"
        )
    raise InvalidSettingsError(
        f"there is no {wanted!r} beside {path}{did_you_mean(wanted, there)}; {text}"
    )


@dataclass(frozen=True)
class _Feature:
    """Feature of the first record, with its count of numbers or bytes."""

    dtype: str
    num_values: int

    @property
    def shape(self) -> list[int]:
        return [] if self.num_values == 1 else [self.num_values]

    @property
    def comment(self) -> str:
        """Comment on the shape, which the record does not contain."""
        for channels in (1, 3):
            side = math.isqrt(self.num_values // channels)
            if side > 3 and side * side * channels == self.num_values:
                return f"as found; [{side}, {side}, {channels}] if it is an image of that size"
        return "as found in the first record"


def records_draft(path: Path, target: str | None, path_text: str) -> Draft:
    """Return the draft for TFRecord files of ``tf.train.Example``.

    The target is by default a feature named ``label`` or similar, or the only scalar.

    Raises:
        InvalidSettingsError: The target or input feature is unclear.
        WorkloadError: The files are invalid.
    """
    first = path
    if path.is_dir():
        first = min(each for each in path.iterdir() if each.suffix.lower() in TFRECORD_SUFFIXES)
    compression = "GZIP" if _head(first).startswith(_GZIP) else ""
    features = _features(first, compression)
    y = _target_of(features, target, first)
    x = _input_of(features, y, first)
    settings: dict[str, Any] = {
        "path": str(path),
        "features": {
            name: {"dtype": features[name].dtype, "shape": features[name].shape} for name in (x, y)
        },
        "x": x,
        "y": y,
        "compression": compression,
    }
    properties = TFRecordsModel(**settings).properties
    declared = [
        Line(
            f"  {scalar(name)}",
            f"{{dtype: {features[name].dtype}, shape: {features[name].shape}}}",
            features[name].comment,
        )
        for name in (x, y)
    ]
    data = [
        Line("path", scalar(path_text), "relative to this file's folder"),
        Line("features", "", "dtype float32 or int64; uint8 for raw bytes in a string"),
        *declared,
        Line("x", scalar(x), "what the model takes"),
        Line("y", scalar(y), "what it predicts"),
        *([Line("compression", compression)] if compression else []),
        _task_line(properties),
        *_SHARES,
    ]
    return Draft(
        name=sweep_name(path.stem),
        about=f"A network on the records of {path.name} that predicts {y!r} from {x!r}.",
        workload="tune_tf.workloads.tfrecords:TFRecordsModel",
        data=tuple(data),
        task=properties.head.task,
        space=_space_of(properties),
        inputs=(f"{x}: {properties.dtype} of shape {list(properties.shape)}",),
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_GZIP))


def _features(path: Path, compression: str) -> dict[str, _Feature]:
    """Return the features of a file's first record.

    Raises:
        WorkloadError: The record is missing, no ``tf.train.Example``, or holds an encoded image.
    """
    import tensorflow as tf  # loaded late: no other draft needs it

    try:
        records = tf.data.TFRecordDataset(str(path), compression).take(1)
        raw = next(iter(records.as_numpy_iterator()), None)
        example = tf.train.Example.FromString(raw or b"")
    except (tf.errors.OpError, ValueError) as error:
        text = str(getattr(error, "message", error)).splitlines()[0]
        raise WorkloadError(f"{path} cannot be read as TFRecords: {text}") from error
    except Exception as error:
        raise WorkloadError(f"{path}: its records are not tf.train.Example: {error}") from error
    found = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            texts = feature.bytes_list.value
            if len(texts) == 1:
                found[name] = _Feature("uint8", len(texts[0]))
                _refuse_picture(name, texts[0], path)
        elif kind is not None:
            dtype = "int64" if kind == "int64_list" else "float32"
            found[name] = _Feature(dtype, len(getattr(feature, kind).value))
    if not found:
        raise WorkloadError(f"{path} holds no records of tf.train.Example with features")
    return found


def _refuse_picture(name: str, text: bytes, path: Path) -> None:
    for start, kind in _PICTURES.items():
        if text.startswith(start):
            raise WorkloadError(
                f"{path}: the feature {name!r} is an encoded {kind} image, which TFRecordsModel "
                "does not decode: start from a custom workload (tune-tf init without DATA), and "
                "decode once with tune_tf.data.prepared"
            )


def _target_of(features: dict[str, _Feature], target: str | None, path: Path) -> str:
    names = list(features)
    if target is not None:
        if target not in features:
            raise InvalidSettingsError(
                f"the records of {path} have no feature "
                f"{target!r}{did_you_mean(target, names)}; they have {', '.join(names)}"
            )
        return target
    named = [name for name in _TARGETS if name in features]
    single = [name for name, feature in features.items() if feature.num_values == 1]
    if named or len(single) == 1:
        return (named or single)[0]
    raise InvalidSettingsError(
        f"which feature is to be predicted? Pass --target FEATURE; the records of {path} have "
        f"{', '.join(names)}"
    )


def _input_of(features: dict[str, _Feature], y: str, path: Path) -> str:
    """Return the feature with the most values besides the target."""
    others = [name for name in features if name != y]
    if not others:
        raise InvalidSettingsError(
            f"the records of {path} have only the feature {y!r}, and nothing to predict it from"
        )
    return max(others, key=lambda name: features[name].num_values)
