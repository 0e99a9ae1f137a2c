"""Computations for single rows, inside the graph of an epoch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trials import Given, draw, furthest, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.training.build import build_for_checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.export import input_example
from tune_tf.training.replicas.replicas import Replicas

pytestmark = pytest.mark.tf


class Noisy(Given):
    """Two features for each of ours, the second with noise of ``noise`` while training."""

    def per_example(self, config, *, training):
        def features(example, seed):
            x, y = example
            noise = config["noise"] * tf.random.stateless_normal(x.shape, seed)
            return tf.concat([x, tf.abs(x + noise if training else x)], 0), y

        return features


def build(config):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(config.get("learning_rate", 0.1)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


NOISY = Noisy(build, draw(21, 9), batch_size=8)
CONFIG = {"noise": 0.5}


def replicas(num):
    return Replicas(Devices(tuple(f"CPU:{i}" for i in range(num))))


def test_every_row_gets_its_own_numbers_whatever_the_number_of_replicas():
    one = run_fresh(NOISY, replicas(1), CONFIG)
    two = run_fresh(NOISY, replicas(2), CONFIG, micro_batches=2)
    assert furthest(one, two) < 1e-5
    assert one[1][0].shape == (12, 3)
    plain = run_fresh(NOISY, replicas(1), {"noise": 0.0})
    assert furthest(one, plain) > 1e-3


@pytest.mark.slow
def test_a_replica_without_a_row_of_the_last_batch_changes_nothing():
    workload = Noisy(build, draw(9, 9), batch_size=8)  # one row is left for three replicas
    one, three = (run_fresh(workload, replicas(num), CONFIG) for num in (1, 3))
    assert furthest(one, three) < 1e-5


def test_rows_are_as_a_loop_over_them_makes_them():
    """An epoch over raw rows and the same one over rows that were computed beforehand."""

    class Squared(Given):
        def per_example(self, config, *, training):
            return lambda example, seed: (example[0] ** 2, example[1])

    data = draw(21, 9)
    beforehand = draw(21, 9)
    beforehand.train[0][:] = np.stack([row**2 for row in data.train[0]])
    beforehand.validation[0][:] = np.stack([row**2 for row in data.validation[0]])
    first = run_fresh(Squared(build, data), replicas(1))
    second = run_fresh(Given(build, beforehand), replicas(1))
    assert furthest(first, second) < 1e-6


def test_validation_rows_may_stay_as_they_are():
    class TrainingOnly(Given):
        def per_example(self, config, *, training):
            return (lambda example, seed: (-example[0], example[1])) if training else None

    class Both(Given):
        def per_example(self, config, *, training):
            return lambda example, seed: (-example[0], example[1])

    only, both = (
        run_fresh(kind(build, draw(21, 9)), replicas(1), epochs=1)[0][0]
        for kind in (TrainingOnly, Both)
    )
    assert only["loss"] == both["loss"]
    assert only["val_loss"] != both["val_loss"]


def test_what_serves_a_model_sees_rows_as_the_model_does():
    model = build_for_checkpoint(NOISY, CONFIG, seed=1)
    example = input_example(NOISY, CONFIG, model)
    assert example.shape == (1, 12)
    np.testing.assert_allclose(example[:, 6:], np.abs(NOISY.load_data({}).validation[0][:1]))


def _unseeded(example, seed):
    return example[0] + tf.random.uniform([6]), example[1]


def _not_a_row(example, seed):
    return example[0]


REFUSED = {
    "numbers without a seed": (_unseeded, "RandomUniform.*stateless"),
    "what is no row": (_not_a_row, r"must return a row \(x, y\)"),
}


@pytest.mark.parametrize(("fn", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_per_example_functions_are_refused(fn, told):
    class Refused(Given):
        def per_example(self, config, *, training):
            return fn

    with pytest.raises(WorkloadError, match=told):
        run_fresh(Refused(build, draw(21, 9)), replicas(1))
