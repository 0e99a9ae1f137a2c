"""Workload on data sets of ``keras.datasets``."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data
from tune_tf.workloads.array_workload import ArrayProperties, ArrayWorkload, NamedArray, data_of
from tune_tf.workloads.head import Head, dense_layers
from tune_tf.workloads.settings_workload import DataSettings

_TEXTS = "imdb"


class _Dataset(NamedTuple):
    """Shape, classes and files (in Keras' cache folder ``datasets``) of a data set."""

    shape: tuple[int, ...]
    num_classes: int
    files: tuple[str, ...]


_FASHION = ("train-labels-idx1", "train-images-idx3", "t10k-labels-idx1", "t10k-images-idx3")
_DATASETS = {
    "mnist": _Dataset((28, 28), 10, ("mnist.npz",)),
    "fashion_mnist": _Dataset(
        (28, 28), 10, tuple(f"fashion-mnist/{name}-ubyte.gz" for name in _FASHION)
    ),
    "cifar10": _Dataset((32, 32, 3), 10, ("cifar-10-batches-py_archive",)),
    "imdb": _Dataset((), 2, ("imdb.npz",)),
}


class KerasDatasetSettings(DataSettings):
    """Which data set, and how much of it. Its own test rows are the test rows.

    Args:
        name: The data set.
        max_rows: Size of a random choice of its training rows; None for all. Example:
            ``5000``.
        num_words: Of ``imdb``: number of most frequent words that are kept apart.
        max_length: Of ``imdb``: number of last words of a text that are read.
    """

    paths: ClassVar[tuple[str, ...]] = ()

    name: Literal["mnist", "fashion_mnist", "cifar10", "imdb"]
    max_rows: Annotated[int, Field(ge=1)] | None = None
    num_words: Annotated[int, Field(ge=4)] = 10_000
    max_length: Annotated[int, Field(ge=1)] = 200


_Arrays = tuple[dict[str, NamedArray], dict[str, NamedArray]]
"""Inputs and targets by part."""


class KerasDatasetModel(ArrayWorkload[KerasDatasetSettings, _Arrays]):
    """Convolutional network on images, averaged embedding and perceptron on texts.

    Missing files are downloaded into Keras' cache. The size of the embedding is ``embedding_dim``
    of the config (default 32).
    """

    settings_class = KerasDatasetSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        shape, num_classes, _ = _DATASETS[self.settings.name]
        head = Head(num_classes)
        if self.settings.name == _TEXTS:
            self._properties = ArrayProperties((self.settings.max_length,), "int32", head)
        else:
            self._properties = ArrayProperties(shape, "uint8", head)

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

    def _read(self) -> tuple[_Arrays, None]:
        import keras  # late: loads TensorFlow

        settings = self.settings
        arguments = {"num_words": settings.num_words} if settings.name == _TEXTS else {}
        try:
            train, test = getattr(keras.datasets, settings.name).load_data(**arguments)
        except Exception as error:
            folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "datasets")
            files = ", ".join(str(folder / name) for name in _DATASETS[settings.name].files)
            raise WorkloadError(
                f"the data set {settings.name} is not in Keras' cache and cannot be downloaded: "
                f"{type(error).__name__}: {error}; without network access put there {files} "
                "(KERAS_HOME sets a folder other than ~/.keras)"
            ) from error
        if settings.max_rows is not None and settings.max_rows < len(train[0]):
            rng = np.random.default_rng(settings.seed)
            rows = np.sort(rng.permutation(len(train[0]))[: settings.max_rows])
            train = train[0][rows], train[1][rows]
        xs: dict[str, NamedArray] = {}
        ys: dict[str, NamedArray] = {}
        for part, (x, y) in (("train", train), ("test", test)):
            rows = keras.utils.pad_sequences(x, settings.max_length) if arguments else x
            name = f"{part} rows of {settings.name}"
            xs[part], ys[part] = NamedArray(rows, name), NamedArray(y, name)
        return (xs, ys), None  # Keras verifies its files by hash

    def _properties_of(self, source: _Arrays) -> ArrayProperties:
        return self.properties

    def _data_of(self, source: _Arrays, config: Config) -> Data:
        return data_of(*source, self.properties, self.settings, "classification")
