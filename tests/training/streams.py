"""Models, and rows as pipelines, for tests of streams."""

import keras
import tensorflow as tf
from trials import Given

from tune_tf.data import Pipeline
from tune_tf.workload import Data

layers = keras.layers


def classifier(config):
    """Return a small model with layers that draw and that count."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(4),
            layers.Dropout(config.get("rate", 0.1)),
            layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(clipnorm=1.0), loss, metrics=["accuracy"])
    return model


def without_dropout(config):
    return classifier({"rate": 0.0})


def as_it_is(*row):
    return row


def streamed(data, **settings):
    """Return the same rows as pipelines."""
    train, validation = (
        part and Pipeline(part, **settings) for part in (data.train, data.validation)
    )
    return Data(train=train, validation=validation)


def numbers_of(stream, size, *, seed=0, epoch=0, shuffled=True):
    """Return the numbers of an epoch's rows, by batch."""
    batches = stream.batches(size, seed=seed, epoch=epoch, shuffled=shuffled)
    return [numbers.numpy().tolist() for numbers, _ in batches]


class Noisy(Given):
    """Adds noise of its seed to each training row."""

    def per_example(self, config, *, training):
        def noise(row, seed):
            x, y = row
            return x + tf.random.stateless_normal([6], seed), y

        return noise if training else None
