"""Micro-batches of stages are pipelined."""

import threading

import keras
import pytest
from trials import Given, begin, draw

pytestmark = pytest.mark.tf


class Passes(keras.layers.Layer):
    """Identity that calls a function in each forward pass of some rows."""

    def __init__(self, forward):
        super().__init__()
        self._forward = forward

    def call(self, x, training=None):
        import tensorflow as tf

        if not training or isinstance(x, keras.KerasTensor):
            return x

        @tf.custom_gradient
        def identity(x):  # without state: TensorFlow may call it in any order
            same = tf.numpy_function(self._forward, [x], x.dtype, stateful=False)
            return tf.ensure_shape(same, x.shape), lambda gradient: gradient

        return identity(x)


def test_a_micro_batch_begins_while_another_is_in_flight(loop_on_grid):
    met = threading.Barrier(2)  # a lone forward pass would break it

    def forward(rows):
        met.wait(timeout=30)
        return rows

    def build(config):
        x = keras.Input((6,))
        first = keras.layers.Dense(8, activation="relu")(x)
        second = keras.layers.Dense(8, activation="relu")(Passes(forward)(first))
        model = keras.Model(x, keras.layers.Dense(3, activation="softmax")(second))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    workload = Given(build, draw(22, 5))
    loop = begin(loop_on_grid(workload, 1, 2, 2), workload)
    for _ in range(2):
        loop.epoch()

    assert not met.broken
