"""Trials on a ``tf.data.Dataset``, driven by hand: what one trial leaves to the next."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tune_tf
from tune_tf.workloads.digits import DigitsMLP

pytestmark = pytest.mark.tf
CONFIG = {"width": 8, "learning_rate": 0.01}


class Shuffled(DigitsMLP):
    """Digits that are shuffled anew in every epoch, without a seed."""

    def load_data(self, config):
        data = super().load_data(config)
        train, validation = (
            tf.data.Dataset.from_tensor_slices(part) for part in (data.train, data.validation)
        )
        return tune_tf.Data(train.shuffle(2000).batch(64), validation.batch(64))

    def global_batch_size(self, config):
        raise AssertionError("the data set brings its batches")


class Batched(Shuffled):
    """The same; `fit` asks for the size of a batch whatever the data are."""

    def global_batch_size(self, config):
        return 64


class Scaled(Batched):
    """The same, of a random part, by whose mean the model scales its input."""

    def load_data(self, config):
        data = super().load_data(config)
        self.mean = float(np.random.uniform(0.5, 2.0))  # noqa: NPY002  unseeded, as users do
        return data

    def build_model(self, config):
        model = super().build_model(config)
        scaled = keras.Sequential([keras.layers.Rescaling(self.mean), model])
        scaled.compile(model.optimizer, model.loss)
        return scaled


class OnRequest(Shuffled):
    """The same as a data set or, by a parameter, as arrays."""

    def load_data(self, config):
        return (
            DigitsMLP.load_data(self, config) if "arrays" in config else super().load_data(config)
        )

    def global_batch_size(self, config):
        return 64


def losses(trial, count=2):
    return [trial.train()["loss"] for _ in range(count)]


@pytest.mark.parametrize(
    ("workload", "loop"), [(Shuffled, "graph"), (Batched, "fit"), (Scaled, "graph")]
)
def test_a_reused_process_gives_the_losses_of_a_fresh_one(workload, loop):
    class BySeed(tune_tf.trainable(workload, loop=loop)):
        def _seed(self):
            return self.config["seed"]

    config = CONFIG | {"seed": 3}
    fresh = losses(BySeed(config=config))
    reused = BySeed(config=CONFIG | {"seed": 4})
    losses(reused, 1)
    reused.reset(config)

    assert losses(reused) == fresh


def test_a_data_set_after_arrays_gives_the_losses_of_a_fresh_process():
    kind = tune_tf.trainable(OnRequest, seed=3)
    fresh = losses(kind(config=CONFIG))
    reused = kind(config=CONFIG | {"arrays": True})
    losses(reused, 1)
    for config in (CONFIG, CONFIG | {"arrays": True}, CONFIG):
        reused.reset(config)
        seen = losses(reused)

        assert (seen == fresh) == ("arrays" not in config)


def test_a_restored_trial_gives_the_losses_of_one_that_never_stopped(tmp_path):
    kind = tune_tf.trainable(Shuffled, seed=3)
    whole = kind(config=CONFIG)
    losses(whole)
    whole.save_checkpoint(str(tmp_path))
    expected = losses(whole)
    other = kind(config=CONFIG)
    losses(other, 1)
    other.load_checkpoint(str(tmp_path))

    assert losses(other) == expected
