"""Workload on TFRecord files."""

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ValidationInfo, field_validator

from tune_tf.config.settings import Settings
from tune_tf.errors import WorkloadError, did_you_mean, first_line, one_of
from tune_tf.validation import short_repr
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
from tune_tf.workloads.head import Head
from tune_tf.workloads.settings_workload import FileStamp, Text, missing_path_error

TFRECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
_BATCH = 4096  # records parsed per call


def _shape(value: Any) -> Any:
    sides = value if isinstance(value, list | tuple) else (None,)
    if any(type(side) is not int or side < 1 for side in sides):
        raise ValueError(
            f"must be a list of lengths like [8, 8, 1] ([] for one number), not {short_repr(value)}"
        )
    return tuple(sides)


class FeatureSettings(Settings):
    """A feature of a ``tf.train.Example``: its dtype and shape, ``[]`` for one number.

    Args:
        dtype: Records hold ``float32`` and ``int64`` as such, ``uint8`` as bytes in one string.
        shape: Lengths of the axes. Example: ``[8, 8, 1]``.
    """

    dtype: Literal["float32", "int64", "uint8"]
    shape: Annotated[tuple[int, ...], BeforeValidator(_shape)]


def _features(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "must be a mapping like {image: {dtype: float32, shape: [8, 8, 1]}, label: {dtype: "
            f"int64, shape: []}}}}, not {short_repr(value)}"
        )
    return {str(name): feature for name, feature in value.items()}


_Feature = Annotated[FeatureSettings, BeforeValidator(FeatureSettings.section)]


class TFRecordsSettings(TargetSettings):
    """Settings of TFRecord files; without ``num_classes`` they are read once more.

    Args:
        path: A file, a folder of ``.tfrecord`` files, or a pattern such as ``train-*.tfrecord``.
            Example: ``train.tfrecord``.
        features: The features of a record that are used, by name. Example: ``{image: {dtype:
            float32, shape: [8, 8, 1]}, label: {dtype: int64, shape: []}}``.
        x: The one that the model takes. Example: ``image``.
        y: The one that is predicted. Example: ``label``.
        compression: How the files are compressed; none by default.
    """

    path: Text
    features: Annotated[dict[str, _Feature], BeforeValidator(_features)]
    x: Text
    y: Text
    compression: Literal["", "GZIP", "ZLIB"] = ""

    @field_validator("x", "y")
    @classmethod
    def _check_features(cls, name: str, info: ValidationInfo) -> str:
        features = info.data.get("features")
        if features is not None and name not in features:
            known = list(features)
            raise ValueError(f"must be {one_of(known)}, not {name!r}{did_you_mean(name, known)}")
        return name


class TFRecordsModel(ArrayWorkload[TFRecordsSettings, tuple[Path, ...]]):
    """Convolutional network on images, perceptron on all other features.

    All records are parsed into arrays in memory.
    """

    settings_class = TFRecordsSettings

    def check_data(self) -> None:
        """Check that the files exist; only trials read their records, with TensorFlow."""
        files, stamp = self._read()
        if self.settings.num_classes is not None:
            self._inspect(files, stamp)

    def _read(self) -> tuple[tuple[Path, ...], FileStamp]:
        path = Path(self.settings.path)
        if path.is_dir():
            files = tfrecord_files(path)
        else:
            files = sorted(map(Path, glob.glob(str(path))))  # noqa: PTH207  absolute
            if not files:
                raise missing_path_error(f"data.path: there is no file {path}")
        return tuple(files), FileStamp.of(files)

    def _properties_of(self, source: tuple[Path, ...]) -> ArrayProperties:
        settings = self.settings
        feature = settings.features[settings.x]
        dtype = input_dtype(np.dtype(feature.dtype), settings.x)
        if settings.num_classes is not None:
            return ArrayProperties(feature.shape, dtype, Head(settings.num_classes))
        (y,) = self._parsed(source, settings.y)
        return ArrayProperties(feature.shape, dtype, target_head({"train": y}, settings))

    def _data_of(self, source: tuple[Path, ...], config: Config) -> Data:
        settings = self.settings
        x, y = self._parsed(source, settings.x, settings.y)
        return data_of({"train": x}, {"train": y}, self.properties, settings, settings.task)

    def _parsed(self, paths: tuple[Path, ...], *names: str) -> list[NamedArray]:
        """Return features of all records as arrays, shape ``[rows, ...]``."""
        import tensorflow as tf

        spec = {name: _parser_of(self.settings.features[name]) for name in names}
        blocks: dict[str, list[Any]] = {name: [] for name in names}
        for path in paths:
            records = tf.data.TFRecordDataset(str(path), self.settings.compression).batch(_BATCH)
            done = 0
            try:
                for batch in records:
                    parsed = tf.io.parse_example(batch, spec)
                    for name in names:
                        blocks[name].append(_row_array(parsed[name], self.settings.features[name]))
                    done += len(batch)
            except (tf.errors.OpError, ValueError) as error:
                raise WorkloadError(
                    f"{path}: records {done} to {done + _BATCH - 1} (counted from 0, as far as "
                    f"they exist) cannot be read as features {', '.join(names)}: "
                    f"{first_line(error)}"
                ) from error
        if not blocks[names[0]]:
            raise WorkloadError(f"{self.settings.path} holds no records")
        return [
            NamedArray(np.concatenate(blocks[name]), f"feature {name!r} of {self.settings.path}")
            for name in names
        ]


def tfrecord_files(folder: Path) -> list[Path]:
    """Return the TFRecord files in a folder, sorted.

    Raises:
        WorkloadError: There are none.
    """
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in TFRECORD_SUFFIXES)
    if not files:
        text = f"data.path: the folder {folder} holds no {', '.join(TFRECORD_SUFFIXES)} file"
        raise WorkloadError(text)
    return files


def _parser_of(feature: FeatureSettings) -> Any:
    import tensorflow as tf

    if feature.dtype == "uint8":
        return tf.io.FixedLenFeature([], tf.string)
    return tf.io.FixedLenFeature(feature.shape, tf.as_dtype(feature.dtype))


def _row_array(values: Any, feature: FeatureSettings) -> Any:
    import tensorflow as tf

    if feature.dtype != "uint8":
        return values.numpy()
    size = int(np.prod(feature.shape, dtype=np.int64))
    lengths = tf.strings.length(values).numpy()
    if (lengths != size).any():
        row = int(np.flatnonzero(lengths != size)[0])
        raise ValueError(f"record {row} of these has {lengths[row]} bytes instead of {size}")
    return tf.io.decode_raw(values, tf.uint8).numpy().reshape(len(lengths), *feature.shape)
