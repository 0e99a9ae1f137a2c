"""Workload on TFRecord files."""

import glob
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.config.settings import Settings
from tune_tf.errors import WorkloadError, did_you_mean, first_line, one_of
from tune_tf.workloads.array_workload import ArrayWorkload, Parts, TargetSettings
from tune_tf.workloads.settings_workload import FileStamp, Text, missing_path_error

TFRECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
_BATCH = 4096  # records parsed per call


class FeatureSettings(Settings):
    """A feature of a ``tf.train.Example``: its dtype and shape, ``[]`` for one number.

    Args:
        dtype: Records hold ``float32`` and ``int64`` as such, ``uint8`` as bytes in one string.
        shape: Lengths of the axes. Example: ``[8, 8, 1]``.
    """

    dtype: Literal["float32", "int64", "uint8"]
    shape: list[Annotated[int, Field(ge=1)]]


_Feature = Annotated[FeatureSettings, BeforeValidator(FeatureSettings.from_dict)]


class TFRecordsSettings(TargetSettings):
    """Settings of TFRecord files.

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
    features: Annotated[dict[str, _Feature], Field(min_length=1)]
    x: str
    y: str
    compression: Literal["", "GZIP", "ZLIB"] = ""

    @field_validator("x", "y")
    @classmethod
    def _check_features(cls, name: str, info: ValidationInfo) -> str:
        features = info.data.get("features")
        if features and name not in features:
            known = list(features)
            raise ValueError(f"must be {one_of(known)}, not {name!r}{did_you_mean(name, known)}")
        return name


class TFRecordsModel(ArrayWorkload[TFRecordsSettings]):
    """Convolutional network on images, perceptron on all other features.

    All records are parsed into arrays in memory.
    """

    settings_class = TFRecordsSettings

    def check_data(self) -> None:
        """Check that the files exist; only trials, which load TensorFlow, read their records."""
        self._files()

    def _files(self) -> list[Path]:
        path = Path(self.settings.path)
        if path.is_dir():
            return tfrecord_files(path)
        files = sorted(map(Path, glob.glob(str(path))))  # noqa: PTH207  absolute
        if not files:
            raise missing_path_error(f"data.path: there is no file {path}")
        return files

    def _read(self) -> tuple[Parts, FileStamp]:
        import tensorflow as tf

        settings, files = self.settings, self._files()
        stamp = FileStamp.of(files)
        features = {name: settings.features[name] for name in (settings.x, settings.y)}
        spec = {
            name: tf.io.FixedLenFeature([], tf.string)
            if feature.dtype == "uint8"
            else tf.io.FixedLenFeature(feature.shape, tf.as_dtype(feature.dtype))
            for name, feature in features.items()
        }
        blocks: dict[str, list[Any]] = {name: [] for name in features}
        for path in files:
            try:
                for batch in tf.data.TFRecordDataset(str(path), settings.compression).batch(_BATCH):
                    for name, values in tf.io.parse_example(batch, spec).items():
                        blocks[name].append(_rows_of(values, features[name]))
            except (tf.errors.OpError, ValueError) as error:
                raise WorkloadError(
                    f"the records of {path} cannot be read as features {', '.join(features)}: "
                    f"{first_line(error)}"
                ) from error
        if not blocks[settings.x]:
            raise WorkloadError(f"{settings.path} holds no records")
        x, y = (np.concatenate(blocks[name]) for name in (settings.x, settings.y))
        return {"train": (x, y)}, stamp


def _rows_of(values: Any, feature: FeatureSettings) -> Any:
    import tensorflow as tf

    if feature.dtype != "uint8":
        return values.numpy()
    size = int(np.prod(feature.shape, dtype=np.int64))
    decoded = tf.ensure_shape(tf.io.decode_raw(values, tf.uint8), [None, size])
    return tf.reshape(decoded, [-1, *feature.shape]).numpy()


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
