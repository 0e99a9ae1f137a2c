"""Drafts of sweeps on NumPy arrays and on TFRecord files."""

import math
from pathlib import Path
from typing import Any

from tune_tf.errors import InvalidSettingsError, WorkloadError, did_you_mean, first_line
from tune_tf.scaffold.draft import DENSE_SPACE, SHARES, Draft, Line, path_line, scalar, sweep_name
from tune_tf.workloads.array_workload import ArrayProperties
from tune_tf.workloads.arrays import ArraysModel
from tune_tf.workloads.tfrecords import FeatureSettings, TFRecordsModel, tfrecord_files

ARRAY_SUFFIXES = (".npz", ".npy")

_TARGETS = ("label", "labels", "y", "target", "class", "output")
_DTYPES = {"int64_list": "int64", "float_list": "float32", "bytes_list": "uint8"}
_IMAGE_FORMATS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
_GZIP = b"\x1f\x8b"
_VALIDATION_SHARE = Line("validation_share", "0.2", "of the rows, if the file does not split them")
_SHARES = (_VALIDATION_SHARE, SHARES[1])


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
        lines = [path_line("path", path_text)]
    else:
        y = _target_file(path, target)
        workload = ArraysModel(x=str(path), y=str(y))
        lines = [
            path_line("x", path_text),
            Line("y", scalar(str(Path(path_text).with_name(y.name)))),
        ]
    properties = workload.properties
    return Draft(
        name=sweep_name(path.stem),
        description=f"A network on the rows of {path.name}, each of shape "
        f"{list(properties.shape)}.",
        workload="tune_tf.workloads.arrays:ArraysModel",
        data=(*lines, _task_line(properties), *_SHARES),
        task=properties.head.task,
        space=_space_of(properties),
        inputs=(f"x: {properties.dtype} of shape {list(properties.shape)}",),
    )


def _task_line(properties: ArrayProperties) -> Line:
    count = properties.head.num_classes
    if count is None:
        comment = "guessed: fractions, or many values; `classification` if these are class numbers"
        return Line("task", "regression", comment)
    comment = f"guessed: {count} different integers; `regression` for quantities"
    return Line("task", "classification", comment)


def _space_of(properties: ArrayProperties) -> tuple[Line, ...]:
    """Return the space besides the optimizer: convolutions for images, else dense layers."""
    is_image = len(properties.shape) in (2, 3)
    filters = Line("filters", "{choice: [8, 16, 32]}", "of the first convolution")
    return (filters, *DENSE_SPACE[1:]) if is_image else DENSE_SPACE


def _target_file(path: Path, target: str | None) -> Path:
    others = sorted(each.name for each in path.parent.glob("*.npy") if each.name != path.name)
    name = target or path.name.replace("x", "y", 1).replace("X", "y", 1)
    if name in others:
        return path.with_name(name)
    text = f"there are {', '.join(others)}" if others else "there is no other .npy file"
    if target is None:
        raise InvalidSettingsError(
            f"which file holds the targets of {path.name}? Pass --target FILE.npy; beside it {text}"
        )
    raise InvalidSettingsError(
        f"there is no {name!r} beside {path}{did_you_mean(name, others)}; {text}"
    )


def records_draft(path: Path, target: str | None, path_text: str) -> Draft:
    """Return the draft for TFRecord files of ``tf.train.Example``.

    The target is by default a feature named ``label`` or similar, or the only scalar.

    Raises:
        InvalidSettingsError: The target or input feature is unclear.
        WorkloadError: The files are invalid.
    """
    file = tfrecord_files(path)[0] if path.is_dir() else path
    with file.open("rb") as content:
        compression = "GZIP" if content.read(len(_GZIP)) == _GZIP else ""
    features = _features(file, compression)
    y = _target_of(features, target, file)
    x = _input_of(features, y, file)
    workload = TFRecordsModel(
        path=str(path),
        features={name: features[name] for name in (x, y)},
        x=x,
        y=y,
        compression=compression,
    )
    properties = workload.properties
    data = [
        path_line("path", path_text),
        Line("features", "", "dtype float32 or int64; uint8 for raw bytes in a string"),
        *(_feature_line(name, features[name]) for name in (x, y)),
        Line("x", scalar(x), "what the model takes"),
        Line("y", scalar(y), "what it predicts"),
        *([Line("compression", compression)] if compression else []),
        _task_line(properties),
        *_SHARES,
    ]
    return Draft(
        name=sweep_name(path.stem),
        description=f"A network on the records of {path.name} that predicts {y!r} from {x!r}.",
        workload="tune_tf.workloads.tfrecords:TFRecordsModel",
        data=tuple(data),
        task=properties.head.task,
        space=_space_of(properties),
        inputs=(f"{x}: {properties.dtype} of shape {list(properties.shape)}",),
    )


def _feature_line(name: str, feature: FeatureSettings) -> Line:
    """Return the declaration of a feature, with a comment on its shape, which records lack."""
    text = f"{{dtype: {feature.dtype}, shape: {list(feature.shape)}}}"
    comment = "as found in the first record"
    for channels in (1, 3):
        num_pixels = math.prod(feature.shape) // channels
        side = math.isqrt(num_pixels)
        if side > 3 and [side * side * channels] == feature.shape:
            comment = f"as found; [{side}, {side}, {channels}] if it is an image of that size"
    return Line(f"  {scalar(name)}", text, comment)


def _features(path: Path, compression: str) -> dict[str, FeatureSettings]:
    """Return the features of a file's first record; strings have as many values as bytes.

    Raises:
        WorkloadError: The record is missing, no ``tf.train.Example``, or holds an encoded image.
    """
    import tensorflow as tf  # loaded late: no other draft needs it

    try:
        records = tf.data.TFRecordDataset(str(path), compression).take(1)
        record = next(iter(records.as_numpy_iterator()), None)
        example = tf.train.Example.FromString(record or b"")
    except (tf.errors.OpError, ValueError) as error:
        raise WorkloadError(f"{path} cannot be read as TFRecords: {first_line(error)}") from error
    except Exception as error:
        raise WorkloadError(f"{path}: its records are not tf.train.Example: {error}") from error
    features = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        values: Any = getattr(feature, kind).value if kind else ()
        if kind == "bytes_list":
            values = values[0] if len(values) == 1 else b""
            _refuse_encoded_image(name, values, path)
        if values:
            shape = [] if len(values) == 1 else [len(values)]
            features[name] = FeatureSettings.from_dict({"dtype": _DTYPES[kind], "shape": shape})
    if not features:
        raise WorkloadError(f"{path} holds no records of tf.train.Example with features")
    return features


def _refuse_encoded_image(name: str, text: bytes, path: Path) -> None:
    for start, image_format in _IMAGE_FORMATS.items():
        if text.startswith(start):
            raise WorkloadError(
                f"{path}: the feature {name!r} is an encoded {image_format} image, which "
                "TFRecordsModel does not decode: start from a custom workload (tune-tf init "
                "without DATA), and decode once with tune_tf.data.prepared"
            )


def _target_of(features: dict[str, FeatureSettings], target: str | None, path: Path) -> str:
    names = list(features)
    if target is not None:
        if target not in features:
            raise InvalidSettingsError(
                f"the records of {path} have no feature "
                f"{target!r}{did_you_mean(target, names)}; they have {', '.join(names)}"
            )
        return target
    usual = [name for name in _TARGETS if name in features]
    scalars = [name for name, feature in features.items() if not feature.shape]
    if usual or len(scalars) == 1:
        return (usual or scalars)[0]
    raise InvalidSettingsError(
        f"which feature is to be predicted? Pass --target FEATURE; the records of {path} have "
        f"{', '.join(names)}"
    )


def _input_of(features: dict[str, FeatureSettings], y: str, path: Path) -> str:
    """Return the feature with the most values besides the target."""
    others = [name for name in features if name != y]
    if not others:
        raise InvalidSettingsError(
            f"the records of {path} have only the feature {y!r}, and nothing to predict it from"
        )
    return max(others, key=lambda name: math.prod(features[name].shape))
