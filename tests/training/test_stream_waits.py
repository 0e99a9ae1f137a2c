"""The time in which a trial waits for rows of a pipeline."""

import time

import keras
import pytest
import tensorflow as tf
from streams import streamed, without_dropout
from trials import Given, begin, draw

from tune_tf.data import Pipeline
from tune_tf.training.loop import GraphLoop
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


def test_waiting_for_rows_is_measured(replicas_of):
    def slow(x, y):
        return tf.numpy_function(_slow_disk, [x], tf.float32), y

    def shaped(x, y):
        x, y = slow(x, y)
        return tf.ensure_shape(x, (6,)), y

    workload = Given(without_dropout, Data(train=Pipeline(draw(20).train, shaped, prefetch=1)))
    loop = begin(GraphLoop(workload, replicas_of(1)), workload)
    loop.epoch()
    loop.epoch()
    assert 0.5 < loop.performance["perf/input_wait"] <= 1

    resident = Given(without_dropout, draw(40))
    loop = begin(GraphLoop(resident, replicas_of(1)), resident)
    loop.epoch()
    assert loop.performance["perf/input_wait"] == 0
    assert loop.performance["perf/rows_per_s"] > 0


class Slow(layers.Layer):
    """A layer that takes its time with each batch."""

    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(_large_model, [x], tf.float32), x.shape)


@pytest.mark.parametrize("num", [1, 2])
def test_training_does_not_count_as_waiting(replicas_of, num):
    def slow(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(4), Slow(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(slow, streamed(draw(44)))
    loop = begin(GraphLoop(workload, replicas_of(num)), workload)
    loop.epoch()
    loop.epoch()
    assert 0 < loop.performance["perf/input_wait"] < 0.4


def _slow_disk(x):
    time.sleep(0.1)
    return x


def _large_model(x):
    time.sleep(0.03)
    return x
