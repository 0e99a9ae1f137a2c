"""Models that Keras' own configs do not tell apart, or that cannot be compared at all."""

import functools
import random
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from structure_models import adam, mlp, sgd, subclassed

layers, optimizers, losses = keras.layers, keras.optimizers, keras.losses


def with_rate_of(number):
    def build(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
        model.compile(optimizers.SGD(lambda: number), "mse")
        return model

    return build


def times(factor):
    return lambda x: x * factor


def gelu(x):
    return x * 2


def scaled_layer(factor):
    class Local(layers.Layer):
        scale = factor

        def call(self, x):
            return x * self.scale

    return Local


FACTOR = 2


def by_global(x):
    return x * FACTOR


def partly(x, factor=2):
    return x * factor


def attributed(**attributes):
    """Return a builder of a classifier with attributes of the model's own."""

    def build(config):
        model = mlp()(config)
        for name, value in attributes.items():
            setattr(model, name, value() if callable(value) else value)
        return model

    return build


def normalized(mean):
    def build(config):
        layer = layers.Normalization()
        layer.adapt(np.float32([[mean] * 6, [mean + 1] * 6]))
        model = keras.Sequential([keras.Input((6,)), layer, layers.Dense(3)])
        model.compile("sgd", "mse")
        return model

    return build


def penalised(shared):
    def build(config):
        penalties = [keras.regularizers.L2(0.1), keras.regularizers.L2(0.1)]
        first, second = penalties[0], penalties[0 if shared else 1]
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(3, kernel_regularizer=first),
                layers.Dense(3, kernel_regularizer=second),
            ]
        )
        model.compile("sgd", "mse")
        return model

    return build


def without_decay(number):
    def build(config):
        model = mlp(optimizer=lambda: optimizers.AdamW(0.1, weight_decay=0.1))(config)
        model.optimizer.exclude_from_weight_decay(var_list=[model.trainable_variables[number]])
        return model

    return build


def changed(change):
    """Return a builder of a classifier of which something is changed when it stands."""

    def build(config):
        model = mlp()(config)
        change(model)
        return model

    return build


def frozen(model):
    model.layers[0].trainable = False


def constrained(model):
    model.layers[0].kernel.constraint = keras.constraints.NonNeg()


def penalised_variable(model):
    model.layers[0].kernel.regularizer = keras.regularizers.L1(0.3)


def patched(factor):
    def change(model):
        model.compute_loss = lambda x, y, y_pred, sample_weight, training=True: factor

    return change


# Pairs that Keras' own configs do not tell apart, or only for the one who reads code.
HIDDEN = {
    "closure of a lambda": [mlp(extra=lambda n=n: [layers.Lambda(times(n))]) for n in (2, 3)],
    "closure of a loss": [mlp(loss=lambda n=n: times(n)) for n in (2, 3)],
    "closure of a metric": [mlp(metrics=lambda n=n: [times(n)]) for n in (2, 3)],
    "default argument": [
        mlp(activation=partly),
        mlp(activation=functools.partial(partly, factor=3)),
    ],
    "activation called as one of Keras": [mlp(activation=gelu), mlp(activation="gelu")],
    "class attribute": [mlp(extra=lambda n=n: [scaled_layer(n)()]) for n in (2, 3)],
    "attribute of a subclassed model": [subclassed(made=n) for n in (2, 3)],
    "array of a model": [subclassed(made=np.float32([n])) for n in (2, 3)],
    "constant of a model": [attributed(x=lambda n=n: tf.constant(n)) for n in (2, 3)],
    "optimizer of a subclassed model": [subclassed(o) for o in (sgd(), adam())],
    "nested attribute": [attributed(x={"a": [n]}) for n in (2, 3)],
    "callable learning rate": [with_rate_of(n) for n in (0.1, 0.2)],
    "Huber.delta": [mlp(loss=lambda n=n: losses.Huber(n)) for n in (0.1, 0.2)],
    "axis of a metric": [
        mlp(metrics=lambda n=n: [keras.metrics.CosineSimilarity(axis=n)]) for n in (0, 1)
    ],
    "what adapt learnt": [normalized(n) for n in (0.0, 5.0)],
    "which layers share a regularizer": [penalised(shared) for shared in (True, False)],
    "exclude_from_weight_decay": [without_decay(n) for n in (0, 2)],
    "trainable": [mlp(), changed(frozen)],
    "constraint of a variable": [mlp(), changed(constrained)],
    "regularizer of a variable": [mlp(), changed(penalised_variable)],
    "patched compute_loss": [changed(patched(n)) for n in (1.0, 2.0)],
    "0 and False": [attributed(x=value) for value in (0, False)],
    "0.0 and -0.0": [attributed(x=value) for value in (0.0, -0.0)],
}


@pytest.mark.parametrize("builds", HIDDEN.values(), ids=HIDDEN)
def test_what_keras_does_not_serialise_tells_models_apart(builds, key_of):
    first, second = (key_of(build) for build in builds)

    assert None not in (first, second)
    assert first != second
    assert [key_of(build) for build in builds] == [first, second]


def test_a_global_that_a_function_names_tells_models_apart(key_of, monkeypatch):
    first = key_of(mlp(activation=by_global))
    monkeypatch.setitem(globals(), "FACTOR", 3)

    assert key_of(mlp(activation=by_global)) != first is not None


UNCOMPARABLE = {
    "generator of Python": lambda: random.Random(1),
    "generator of NumPy": lambda: np.random.default_rng(1),
    "generator function": lambda: (n for n in range(3)),
    "open file": lambda: Path(__file__).open(encoding="utf-8"),  # noqa: SIM115
    "dataset": lambda: tf.data.Dataset.range(3),
}


@pytest.mark.parametrize("make", UNCOMPARABLE.values(), ids=UNCOMPARABLE)
@pytest.mark.parametrize("vouched", [None, "one"])
def test_a_model_with_state_that_cannot_be_compared_has_no_key(make, vouched, key_of):
    made = make()

    assert key_of(attributed(x=lambda: made), vouched=vouched) is None
