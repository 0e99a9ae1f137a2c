"""Which models share a traced program."""

import functools
import random
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from trials import Given, built, draw

from tune_tf.training.core.build import build_for_training, build_model
from tune_tf.training.core.program_cache import program_fingerprint
from tune_tf.training.core.scalars import scalars_of

layers, optimizers, losses = keras.layers, keras.optimizers, keras.losses
schedules = optimizers.schedules

DATA = draw(16)


def mlp(
    width=4,
    activation="relu",
    optimizer=lambda: optimizers.Adam(0.01),
    loss=lambda: losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=lambda: ["accuracy"],
    dropout=0.2,
    extra=list,
    dtype=None,
    inputs=6,
):
    """Return a builder of a classifier; everything that is an object is given as a factory."""

    def build(config):
        model = keras.Sequential(
            [
                keras.Input((inputs,)),
                layers.Dense(width, activation=activation, dtype=dtype),
                layers.Dropout(dropout),
                *extra(),
                layers.Dense(3),
            ]
        )
        model.compile(optimizer(), loss(), metrics=metrics())
        return model

    return build


def functional(swapped=False, rate=0.1):
    """Return a builder of a functional model, of which one end can be swapped with another."""

    def build(config):
        a, b = keras.Input((6,)), keras.Input((6,))
        first, second = layers.Dense(4)(a), layers.Dense(4)(b)
        ends = [second, first] if swapped else [first, second]
        model = keras.Model([a, b], layers.Dense(3)(layers.Subtract()(ends)))
        model.compile(optimizers.SGD(rate), "mse")
        return model

    return build


@pytest.fixture(scope="module")
def key_of(replicas_of):
    """Return a function from a builder to the key of what it builds."""

    def key(build, vouched=None, batch=()):
        workload = Given(build, None, structure=lambda config: vouched)
        model = build_model(workload, {}, replicas_of(1), 1, np.zeros((2, 6), "float32"))
        return program_fingerprint(workload, model, scalars_of(model), {}, batch).key

    return key


def sgd(**arguments):
    return lambda: optimizers.SGD(**({"learning_rate": 0.1} | arguments))


def adam(**arguments):
    return lambda: optimizers.Adam(**({"learning_rate": 0.1} | arguments))


def decaying(schedule):
    return lambda: optimizers.SGD(schedule)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(mlp(), mlp(), id="built twice"),
        pytest.param(mlp(optimizer=adam()), mlp(optimizer=adam(learning_rate=3e-4)), id="rate"),
        pytest.param(mlp(optimizer=adam()), mlp(optimizer=adam(beta_1=0.5)), id="beta"),
        pytest.param(
            mlp(optimizer=adam(clipnorm=0.1)), mlp(optimizer=adam(clipnorm=0.2)), id="clip"
        ),
        pytest.param(mlp(dropout=0.2), mlp(dropout=0.5), id="dropout"),
        pytest.param(functional(rate=0.1), functional(rate=0.2), id="functional"),
        pytest.param(
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.1, 5, 0.9))),
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.2, 5, 0.5))),
            id="schedule",
        ),
        pytest.param(
            mlp(extra=lambda: [layers.Dense(2, kernel_regularizer=keras.regularizers.L2(0.1))]),
            mlp(extra=lambda: [layers.Dense(2, kernel_regularizer=keras.regularizers.L2(0.2))]),
            id="penalty",
        ),
        pytest.param(
            mlp(extra=lambda: [layers.Dropout(0.1, seed=1)]),
            mlp(extra=lambda: [layers.Dropout(0.1, seed=2)]),
            id="seed",
        ),
        pytest.param(
            mlp(metrics=lambda: [keras.metrics.SparseCategoricalAccuracy()]),
            mlp(metrics=lambda: [keras.metrics.SparseCategoricalAccuracy()]),
            id="metric object",
        ),
    ],
)
def test_models_of_one_program_have_one_key(first, second, key_of):
    assert key_of(first) == key_of(second) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(mlp(width=4), mlp(width=5), id="width"),
        pytest.param(mlp(activation="relu"), mlp(activation="tanh"), id="activation"),
        pytest.param(mlp(optimizer=adam()), mlp(optimizer=adam(amsgrad=True)), id="amsgrad"),
        pytest.param(mlp(optimizer=adam()), mlp(optimizer=adam(clipnorm=1.0)), id="clip or none"),
        pytest.param(
            mlp(optimizer=adam(clipnorm=1.0)), mlp(optimizer=adam(clipvalue=1.0)), id="kind of clip"
        ),
        pytest.param(mlp(optimizer=sgd()), mlp(optimizer=sgd(momentum=0.9)), id="momentum or none"),
        pytest.param(
            mlp(optimizer=sgd(momentum=0.9)),
            mlp(optimizer=sgd(momentum=0.9, nesterov=True)),
            id="nesterov",
        ),
        pytest.param(mlp(optimizer=sgd()), mlp(optimizer=adam()), id="optimizer"),
        pytest.param(mlp(dropout=0.0), mlp(dropout=0.2), id="dropout or none"),
        pytest.param(mlp(), mlp(loss=losses.SparseCategoricalCrossentropy), id="logits or not"),
        pytest.param(mlp(loss=lambda: "mse"), mlp(loss=lambda: "mae"), id="loss"),
        pytest.param(mlp(), mlp(metrics=list), id="metrics"),
        pytest.param(
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.1, 5, 0.9))),
            mlp(optimizer=decaying(schedules.InverseTimeDecay(0.1, 5, 0.9))),
            id="kind of schedule",
        ),
        pytest.param(
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.1, 5, 0.9))),
            mlp(optimizer=sgd()),
            id="schedule or number",
        ),
        pytest.param(
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.1, 5, 0.9))),
            mlp(optimizer=decaying(schedules.ExponentialDecay(0.1, 6, 0.9))),
            id="steps of a schedule",
        ),
        pytest.param(mlp(dtype="float32"), mlp(dtype="mixed_bfloat16"), id="policy"),
        pytest.param(functional(False), functional(True), id="swapped edges"),
        pytest.param(
            mlp(extra=lambda: [layers.LeakyReLU(0.1)]),
            mlp(extra=lambda: [layers.LeakyReLU(0.2)]),
            id="a float that is not carried",
        ),
    ],
)
def test_models_of_other_programs_have_other_keys(first, second, key_of):
    keys = key_of(first), key_of(second)

    assert None not in keys
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((8, 1), (16, 1), id="batch size"),
        pytest.param((8, 1), (8, 2), id="replicas"),
        pytest.param((((8, 6), "float32"),), (((8, 7), "float32"),), id="shape of the data"),
    ],
)
def test_what_is_traced_besides_the_model_is_in_the_key(first, second, key_of):
    assert key_of(mlp(), batch=first) != key_of(mlp(), batch=second)


@keras.saving.register_keras_serializable("tests")
class Scaled(layers.Layer):
    def call(self, x):
        return x * 2


class Hidden(keras.Model):
    """A model that Keras cannot serialise, with a layer and whatever else it is given."""

    def __init__(self, made=None, **attributes):
        super().__init__()
        self.made = made
        self.out = layers.Dense(3)
        for name, value in attributes.items():
            setattr(self, name, value)

    def call(self, x):
        return self.out(x)

    def get_config(self):
        raise NotImplementedError


def subclassed(optimizer=None, **attributes):
    def build(config):
        model = Hidden(**attributes)
        model.compile((optimizer or sgd())(), "mse")
        return model

    return build


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


def test_a_workload_can_tell_models_further_apart(key_of):
    assert key_of(mlp(), vouched="one") == key_of(mlp(), vouched="one") is not None
    assert key_of(mlp(), vouched="one") != key_of(mlp(), vouched="other")


class ByAttributes(Given):
    """Trains by what it has: a rate that it names, and data that it does not."""

    def train_step(self, model, batch):
        return {"loss": self._scaled(1.0)}

    def _scaled(self, value):
        return value * self.rate


class HandsItselfOn(ByAttributes):
    def train_step(self, model, batch):
        return {"loss": vars(self)["rate"]}


@pytest.fixture
def step_key(replicas_of):
    def key(kind, **attributes):
        workload = kind(mlp(), None)
        vars(workload).update(attributes)
        model = built_plainly(workload, replicas_of(1))
        return program_fingerprint(workload, model, [], {}).key

    return key


def built_plainly(workload, replicas):
    return build_model(workload, {}, replicas, 1, np.zeros((2, 6), "float32"))


def test_attributes_that_a_train_step_names_are_in_the_key(step_key):
    assert step_key(ByAttributes, rate=1) != step_key(ByAttributes, rate=2)
    assert step_key(ByAttributes, rate=1, x=np.random.default_rng(1)) == step_key(
        ByAttributes, rate=1, x=2
    )


def test_all_of_a_workload_is_in_the_key_where_its_step_hands_it_on(step_key):
    assert step_key(HandsItselfOn, rate=1) != step_key(HandsItselfOn, rate=2)
    assert step_key(HandsItselfOn, rate=1, x=np.random.default_rng(1)) is None


@pytest.mark.parametrize("setting", ["epsilon", "floatx", "image_data_format"])
def test_settings_of_keras_are_in_the_key(setting, key_of):
    before, other = (
        getattr(keras.config, setting)(),
        {
            "epsilon": 1e-3,
            "floatx": "float64",
            "image_data_format": "channels_first",
        }[setting],
    )
    first = key_of(subclassed())
    try:
        getattr(keras.config, f"set_{setting}")(other)
        second = key_of(subclassed())
    finally:
        getattr(keras.config, f"set_{setting}")(before)

    assert first != second


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        pytest.param(keras.metrics.AUC, "auc", id="object"),
        pytest.param(lambda: "auc", "auc", id="by name"),
        pytest.param(lambda: keras.metrics.BinaryIoU(), "binary_io_u", id="object of two words"),
    ],
)
def test_names_of_metrics_do_not_depend_on_what_was_built_before(metric, name, replicas_of):
    def build(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=[metric()])
        return model

    x, _ = DATA.train
    names = []
    for _ in range(3):
        model = built(Given(build, DATA), replicas_of(1))
        build_for_training(model, (x[:2], np.float32([[0], [1]])), replicas_of(1))
        names.append(set(model.get_metrics_result()))

    assert names == [{"loss", name}] * 3
