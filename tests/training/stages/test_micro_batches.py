"""Micro-batches of stages are pipelined, or one after another where memory is short."""

import threading
from types import SimpleNamespace

import keras
import pytest
from trials import Given, begin, draw

from tune_tf.parallelism import ModelParallel
from tune_tf.resources import TrialResources
from tune_tf.trainables import ModelParallelTrainable
from tune_tf.trainables.memory.oom_retries import RetryResources
from tune_tf.trainables.trial_settings import TrialSettings

pytestmark = pytest.mark.tf

ONE_AT_A_TIME = ["forward"] * 4 + ["forward", "backward"] * 4
"""Passes of four micro-batches: their outputs for the loss, then each with its gradient."""


class Passes(keras.layers.Layer):
    """Identity that records each forward and backward pass of some rows."""

    def __init__(self, forward, backward):
        super().__init__()
        self._forward, self._backward = forward, backward

    def call(self, x, training=None):
        import tensorflow as tf

        if not training or isinstance(x, keras.KerasTensor):
            return x

        @tf.custom_gradient
        def identity(x):
            return called(self._forward, x), lambda gradient: called(self._backward, gradient)

        def called(record, tensor):  # without state: TensorFlow may call it in any order
            same = tf.numpy_function(record, [tensor], tensor.dtype, stateful=False)
            return tf.ensure_shape(same, tensor.shape)

        return identity(x)


@pytest.fixture
def recorded():
    """Return passes as they are recorded, and a function to make a workload that records them."""
    passes = []

    def workload(met=None):
        def forward(rows):
            passes.append("forward")
            if met is not None:
                met.wait(timeout=30)
            return rows

        def backward(rows):
            passes.append("backward")
            return rows

        def build(config):
            x = keras.Input((6,))
            first = keras.layers.Dense(8, activation="relu", kernel_regularizer="l2")(x)
            second = keras.layers.Dense(8, activation="relu")(Passes(forward, backward)(first))
            model = keras.Model(x, keras.layers.Dense(3, activation="softmax")(second))
            model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
            return model

        return Given(build, draw(22, 5))

    return passes, workload


def epochs_of(loop, workload, passes):
    begin(loop, workload)
    passes.clear()  # those of the trace
    return [loop.epoch() for _ in range(2)]


def test_a_micro_batch_begins_while_another_is_in_flight(recorded, loop_on_grid):
    passes, workload = recorded
    met = threading.Barrier(2)  # a lone forward pass would break it

    epochs_of(loop_on_grid(workload(met), 1, 2, 2), workload(met), passes)

    assert passes[:2] == ["forward", "forward"]
    assert not met.broken


def test_to_save_memory_a_micro_batch_waits_for_the_one_before_and_changes_no_number(
    recorded, loop_on_grid
):
    passes, workload = recorded

    given = workload()
    saving = epochs_of(loop_on_grid(given, 1, 2, 4, saves_memory=True), given, passes)

    assert passes == ONE_AT_A_TIME * 3 * 2  # batches, epochs
    for epoch, whole in zip(
        saving, epochs_of(loop_on_grid(given, 1, 1, 1), given, []), strict=True
    ):
        assert epoch == pytest.approx(whole, rel=1e-5)


def test_a_trial_that_ran_out_of_memory_saves_it(recorded, monkeypatch):
    from tune_tf.training import devices

    passes, workload = recorded
    on_cpu = devices.Devices(("CPU:0", "CPU:1"))
    monkeypatch.setattr(devices, "claim_devices", lambda resources, num: on_cpu)
    settings = TrialSettings(ModelParallel(2), TrialResources(2), seed=1)

    class Retried(ModelParallelTrainable):
        trial_resources = RetryResources([{"CPU": 2}], micro_batches=4)

        def setup(self, config):
            here = SimpleNamespace(load=lambda where: workload())  # to see what it records
            super().setup(config, workload=here, settings=settings)

    trial = Retried({})
    passes.clear()
    result = trial.train()
    trial.stop()

    assert result["micro_batches"] == 4
    assert passes == ONE_AT_A_TIME * 3
