"""Random numbers do not depend on whether XLA compiles a model."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trials import Given, draw, furthest, run_fresh

from tune_tf.training.keras_internals import draws_as_without_xla

pytestmark = pytest.mark.tf
layers = keras.layers
DRAWS = {
    "uniform": lambda seed: tf.random.stateless_uniform((7, 3), seed, -2.0, 5.0),
    "half": lambda seed: tf.random.stateless_uniform((7,), seed, dtype=tf.float16),
    "bfloat16": lambda seed: tf.random.stateless_uniform((7,), seed, dtype=tf.bfloat16),
    "integer": lambda seed: tf.random.stateless_uniform((99,), seed, 3, 10, tf.int32),
    "normal": lambda seed: tf.random.stateless_normal((5, 3, 1), seed, 1.0, 2.0),
    "normal half": lambda seed: tf.random.stateless_normal((9,), seed, dtype=tf.float16),
    "normal scalar": lambda seed: tf.random.stateless_normal((), seed),
    "no numbers": lambda seed: tf.random.stateless_normal((0, 4), seed),
    "dropout": lambda seed: tf.nn.experimental.stateless_dropout(tf.ones((9, 4)), 0.3, seed),
}


@pytest.mark.parametrize("draws", DRAWS.values(), ids=DRAWS)
def test_a_compiled_draw_equals_a_plain_one(draws):
    def compiled(seed):
        with draws_as_without_xla():
            return draws(seed)

    plain, by_xla = tf.function(draws), tf.function(compiled, jit_compile=True)
    for seed in ([3, 9], [0, 0], [-1, 2**31 - 1]):
        seed = tf.constant(seed)  # a number in the graph would be drawn before XLA compiles it
        expected = tf.cast(plain(seed), tf.float64)
        np.testing.assert_allclose(tf.cast(by_xla(seed), tf.float64), expected, 2e-6, 2e-6)


def test_outside_of_the_context_draws_are_tensorflows_own():
    before = tf.random.stateless_uniform((3,), [1, 2]).numpy()
    with pytest.raises(ZeroDivisionError), draws_as_without_xla():
        raise ZeroDivisionError
    np.testing.assert_array_equal(tf.random.stateless_uniform((3,), [1, 2]), before)


class Noisy(Given):
    """Adds noise to each row, and turns some of them."""

    def per_example(self, config, *, training):
        def augment(row, seed):
            x, y = row
            x = x + 0.1 * tf.random.stateless_normal((6,), seed)
            turned = tf.random.stateless_uniform((), seed) < 0.5
            return tf.where(turned, tf.reverse(x, [0]), x), y

        return augment if training else None


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Dropout(0.3),
        lambda: layers.GaussianNoise(0.2),
        lambda: layers.GaussianDropout(0.2, seed=4),
        lambda: layers.Lambda(lambda x: x + keras.random.uniform(keras.ops.shape(x))),
    ],
    ids=["Dropout", "GaussianNoise", "GaussianDropout", "without a seed"],
)
def test_a_compiled_model_draws_what_a_plain_one_draws(layer, replicas_of):
    def build(config):
        model = keras.Sequential([keras.Input((6,)), layer(), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], jit_compile=config["jit"])
        return model

    for workload in (Noisy(build, draw(45, 19)), Given(build, draw(45, 19))):
        one, by_xla = (run_fresh(workload, replicas_of(1), {"jit": jit}) for jit in (False, True))
        assert furthest(by_xla, one) <= 1e-5
