"""The time in which a trial waits for rows of a pipeline."""

import functools
import threading
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf
from streams import streamed, without_dropout
from trials import Given, begin, draw

from tune_tf.data import Pipeline
from tune_tf.training.core.loop import GraphLoop
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


class Disk:
    """Takes a second for each row, which it reads only while one is waited for; else no time goes.

    Before the first batch is waited for it reads what it is asked for: a stream reads its first row
    to know what its rows look like.

    Attributes:
        now: The time, in seconds.
    """

    def __init__(self):
        self.now = 0.0
        self._awaited = self._looked = False
        self._changed = threading.Condition()

    def read(self, row):
        with self._changed:
            assert self._changed.wait_for(lambda: self._awaited or not self._looked, 240)
            self.now += 1.0
        return row

    def look(self):
        """Return the time, before and after a batch is waited for in turn."""
        with self._changed:
            self._awaited, self._looked = not self._awaited, True
            self._changed.notify_all()
            return self.now

    def close(self):
        with self._changed:
            self._looked = False
            self._changed.notify_all()


@pytest.fixture
def disk(monkeypatch):
    """A disk whose time is that of the loop."""
    disk = Disk()
    be_the_clock(disk, monkeypatch)
    yield disk
    disk.close()


def be_the_clock(timed, monkeypatch):
    """Have a loop ask for the time where it is kept."""
    looked = functools.partial(tf.numpy_function, timed.look, [], tf.float64)
    monkeypatch.setattr(tf, "timestamp", lambda: tf.ensure_shape(looked(), []))
    clock = SimpleNamespace(perf_counter=lambda: timed.now)
    monkeypatch.setattr("tune_tf.training.core.loop.time", clock)


def test_waiting_for_rows_is_measured(replicas_of, disk):
    def read(x, y):
        return tf.ensure_shape(tf.numpy_function(disk.read, [x], tf.float32), (6,)), y

    workload = Given(without_dropout, Data(train=Pipeline(draw(20).train, read, prefetch=1)))
    loop = begin(GraphLoop(replicas_of(1)), workload)
    loop.epoch()
    loop.epoch()
    assert loop.performance["perf/input_wait"] == 1
    assert loop.performance["perf/rows_per_s"] == 1


def test_resident_rows_have_no_input_wait(replicas_of):
    resident = Given(without_dropout, draw(40))
    loop = begin(GraphLoop(replicas_of(1)), resident)
    loop.epoch()
    assert loop.performance["perf/input_wait"] == 0
    assert loop.performance["perf/rows_per_s"] > 0


class LargeModel:
    """Takes a second for each batch; else no time goes.

    Attributes:
        now: The time, in seconds.
    """

    def __init__(self):
        self.now = 0.0

    def call(self, x):
        self.now += 1.0
        return x

    def look(self):
        return self.now


class Slow(layers.Layer):
    """A layer that takes its time with each batch."""

    def __init__(self, model):
        super().__init__()
        self._model = model

    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(self._model.call, [x], tf.float32), x.shape)


@pytest.mark.parametrize("num", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_training_does_not_count_as_waiting(replicas_of, num, monkeypatch):
    model = LargeModel()
    be_the_clock(model, monkeypatch)

    def slow(config):
        model_of_keras = keras.Sequential(
            [keras.Input((6,)), layers.Dense(4), Slow(model), layers.Dense(3)]
        )
        model_of_keras.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model_of_keras

    workload = Given(slow, streamed(draw(44)))
    loop = begin(GraphLoop(replicas_of(num)), workload)
    loop.epoch()
    before = model.now
    loop.epoch()
    assert model.now - before == 6 * num
    assert loop.performance["perf/input_wait"] == 0
