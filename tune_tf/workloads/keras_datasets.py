"""Workload on data sets of ``keras.datasets``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.array_rows import ArrayProperties, ArrayWorkload, NamedArray, data_of
from tune_tf.workloads.head import Head, dense_layers
from tune_tf.workloads.own_data import DataSettings

_TEXTS = "imdb"


@dataclass(frozen=True)
class _Known:
    """Shape, classes and files (in Keras' cache folder ``datasets``) of a data set."""

    shape: tuple[int, ...]
    num_classes: int
    files: tuple[str, ...]


_FASHION = ("train-labels-idx1", "train-images-idx3", "t10k-labels-idx1", "t10k-images-idx3")
_KNOWN = {
    "mnist": _Known((28, 28), 10, ("mnist.npz",)),
    "fashion_mnist": _Known(
        (28, 28), 10, tuple(f"fashion-mnist/{name}-ubyte.gz" for name in _FASHION)
    ),
    "cifar10": _Known((32, 32, 3), 10, ("cifar-10-batches-py_archive",)),
    "imdb": _Known((), 2, ("imdb.npz",)),
}


class KerasDatasetSettings(DataSettings):
    """Which data set, and how much of it. Its own test rows are the test rows.

    Args:
        name: The data set.
        max_rows: Most rows of its training rows that are used, a random choice; None for all.
        num_words: Of ``imdb``: number of most frequent words that are kept apart.
        max_length: Of ``imdb``: so many last words of a text are read.
    """

    paths: ClassVar[tuple[str, ...]] = ()

    name: Literal["mnist", "fashion_mnist", "cifar10", "imdb"]
    max_rows: Annotated[int, Field(ge=1)] | None = None
    num_words: Annotated[int, Field(ge=4)] = 10_000
    max_length: Annotated[int, Field(ge=1)] = 200


_Parts = dict[str, tuple[Any, Any]]


class KerasDatasetModel(ArrayWorkload[KerasDatasetSettings, _Parts]):
    """Convolutional network on images, averaged embedding and perceptron on texts.

    Missing files are downloaded into Keras' cache. Config values read: those of
    :func:`~tune_tf.workloads.head.convolutions` for images; ``embedding_dim`` (default 32)
    and those of :func:`~tune_tf.workloads.head.dense_layers` for texts; and those of
    :func:`~tune_tf.workloads.head.make_optimizer`.

    Args:
        settings: Fields of :class:`KerasDatasetSettings`.
    """

    settings_class = KerasDatasetSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        name, known = self.settings.name, _KNOWN[self.settings.name]
        shape = (self.settings.max_length,) if name == _TEXTS else known.shape
        dtype = "int32" if name == _TEXTS else "uint8"
        self._properties = ArrayProperties(shape, dtype, Head(known.num_classes))

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        if self.settings.name != _TEXTS:
            return super().build_model(config)
        import keras

        properties = self.properties
        words = keras.Input(properties.shape, dtype="int32")
        dim = int(config.get("embedding_dim", 32))
        embedded = keras.layers.Embedding(self.settings.num_words, dim, mask_zero=True)(words)
        features = keras.layers.GlobalAveragePooling1D()(embedded)
        return properties.head.compiled(words, dense_layers(features, config), config)

    def _read(self) -> tuple[_Parts, None]:
        import keras  # late: loads TensorFlow

        settings, known = self.settings, _KNOWN[self.settings.name]
        arguments = {"num_words": settings.num_words} if settings.name == _TEXTS else {}
        try:
            train, test = getattr(keras.datasets, settings.name).load_data(**arguments)
        except Exception as error:
            folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "datasets")
            files = ", ".join(str(folder / name) for name in known.files)
            raise WorkloadError(
                f"the data set {settings.name} is not in Keras' cache and cannot be downloaded: "
                f"{type(error).__name__}: {error}; without network access put there {files} "
                "(KERAS_HOME sets a folder other than ~/.keras)"
            ) from error
        if settings.max_rows is not None and settings.max_rows < len(train[0]):
            rng = np.random.default_rng(settings.seed)
            rows = np.sort(rng.permutation(len(train[0]))[: settings.max_rows])
            train = train[0][rows], train[1][rows]
        parts = {"train": train, "test": test}
        if settings.name == _TEXTS:
            parts = {
                name: (_padded(texts, settings.max_length), labels)
                for name, (texts, labels) in parts.items()
            }
        return parts, None  # Keras verifies its files by hash

    def _found(self, source: _Parts) -> ArrayProperties:
        return self.properties

    def _data(self, source: _Parts, config: Config) -> Data:
        xs, ys = (
            {
                part: NamedArray(arrays[position], f"{part} rows of {self.settings.name}")
                for part, arrays in source.items()
            }
            for position in (0, 1)
        )
        return data_of(xs, ys, self.properties, self.settings, "classification")


def _padded(texts: Any, length: int) -> "np.ndarray[Any, Any]":
    """Return the last words of texts, shape ``[rows, length]``, left-padded with 0."""
    found = np.zeros((len(texts), length), np.int32)
    for row, words in enumerate(texts):
        last = words[-length:]
        found[row, length - len(last) :] = last
    return found
