"""Workload on data sets of ``keras.datasets``."""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config
from tune_tf.workloads.array_workload import ArrayProperties, ArrayWorkload, Parts, TargetSettings
from tune_tf.workloads.head import dense_layers

_TEXTS = ("imdb", "reuters")


class KerasDatasetSettings(TargetSettings):
    """Which data set, and how much of it. Its own test rows are the test rows.

    Args:
        name: The data set.
        max_rows: Size of a random choice of its training rows; None for all. Example:
            ``5000``.
        num_words: Of texts: number of most frequent words that are kept apart.
        max_length: Of texts: number of last words of a text that are read.
    """

    paths: ClassVar[tuple[str, ...]] = ()

    name: Literal[
        "mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters", "california_housing"
    ]
    max_rows: Annotated[int, Field(ge=1)] | None = None
    num_words: Annotated[int, Field(ge=4)] = 10_000
    max_length: Annotated[int, Field(ge=1)] = 200


class KerasDatasetModel(ArrayWorkload[KerasDatasetSettings]):
    """Convolutional network on images, averaged embedding and perceptron on texts.

    Missing files are downloaded into Keras' cache. The size of the embedding is ``embedding_dim``
    of the config (default 32).
    """

    settings_class = KerasDatasetSettings

    def check_data(self) -> None:
        """Check nothing: only trials, which load TensorFlow, read the data set."""

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        if self.settings.name not in _TEXTS:
            return super().build_model(config)
        import keras

        words = keras.Input(self.properties.shape, dtype="int32")
        dim = int(config.get("embedding_dim", 32))
        embedded = keras.layers.Embedding(self.settings.num_words, dim, mask_zero=True)(words)
        features = keras.layers.GlobalAveragePooling1D()(embedded)
        return self.properties.head.compiled(words, dense_layers(features, config), config)

    @property
    def _task(self) -> Any:
        is_classes = self.settings.task == "auto" and self.settings.name != "california_housing"
        return "classification" if is_classes else self.settings.task

    def _read(self) -> tuple[Parts, None]:
        import keras  # late: loads TensorFlow

        settings = self.settings
        arguments = {"num_words": settings.num_words} if settings.name in _TEXTS else {}
        try:
            train, test = getattr(keras.datasets, settings.name).load_data(**arguments)
        except Exception as error:
            raise WorkloadError(
                f"the data set {settings.name} is not in Keras' cache (~/.keras/datasets, or that "
                f"of KERAS_HOME) and cannot be downloaded: {type(error).__name__}: {error}"
            ) from error
        if settings.max_rows is not None and settings.max_rows < len(train[0]):
            rng = np.random.default_rng(settings.seed)
            rows = np.sort(rng.permutation(len(train[0]))[: settings.max_rows])
            train = train[0][rows], train[1][rows]
        parts = {"train": train, "test": test}
        if arguments:
            pad = keras.utils.pad_sequences
            parts = {part: (pad(x, settings.max_length), y) for part, (x, y) in parts.items()}
        return parts, None  # Keras verifies its files by hash

    def _properties_of(self, source: Parts) -> ArrayProperties:
        properties = super()._properties_of(source)
        is_text = self.settings.name in _TEXTS
        return dataclasses.replace(properties, dtype="int32") if is_text else properties
