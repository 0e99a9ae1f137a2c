"""Models, and devices that have no room for rows, for tests of streams."""

import keras
import tensorflow as tf
from trials import Given

from tune_tf.training.devices import Devices
from tune_tf.training.replicas.replicas import Replicas

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


def without_room(num=1, memory_bytes=0):
    """Return replicas on devices with so little memory that arrays are streamed to them."""
    return Replicas(Devices(tuple(f"CPU:{i}" for i in range(num)), memory_bytes))


class Noisy(Given):
    """Adds noise of its seed to each training row."""

    def per_example(self, config, *, training):
        def noise(row, seed):
            x, y = row
            return x + tf.random.stateless_normal([6], seed), y

        return noise if training else None
