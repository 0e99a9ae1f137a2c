"""Trials on a ``tf.data.Dataset``, driven by hand: what one trial leaves to the next."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import slow

import tune_tf
from tune_tf.workload import Data, Workload

pytestmark = pytest.mark.tf


class Shuffled(Workload):
    """Shuffles without a seed, and scales by what NumPy drew, also without one."""

    def load_data(self, config):
        rows = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
        self.scale = float(np.random.uniform(0.5, 2.0))  # noqa: NPY002  as users do
        dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1]))
        return Data(dataset.shuffle(20).batch(6), dataset.batch(6))

    def build_model(self, config):
        layers = [keras.layers.Rescaling(self.scale), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile("sgd", "mse")
        return model

    def global_batch_size(self, config):
        return 6  # `fit` asks for it whatever the data are


def losses(trial, count=2):
    return [trial.train()["loss"] for _ in range(count)]


@pytest.mark.parametrize("loop", ["graph", slow("fit")])
def test_a_reused_process_gives_the_losses_of_a_fresh_one(loop):
    class BySeed(tune_tf.trainable(Shuffled, loop=loop)):
        def _seed(self):
            return self.config["seed"]

    fresh = losses(BySeed(config={"seed": 3}))
    reused = BySeed(config={"seed": 4})
    losses(reused, 1)
    reused.reset({"seed": 3})

    assert losses(reused) == fresh


def test_a_restored_trial_gives_the_losses_of_one_that_never_stopped(tmp_path):
    kind = tune_tf.trainable(Shuffled, seed=3)
    whole, other = kind(config={}), kind(config={})
    losses(whole)
    whole.save_checkpoint(str(tmp_path))
    losses(other, 1)
    other.load_checkpoint(str(tmp_path))

    assert losses(other) == losses(whole)
