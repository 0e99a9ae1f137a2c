"""Which models share a traced program."""

import keras
import numpy as np
import pytest
from trials import Given, built, draw

from tune_tf.training.build import build_for_training, build_model
from tune_tf.training.scalars import scalars_of
from tune_tf.training.structure import structure_key

pytestmark = pytest.mark.tf
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
        data = None
        model = build_model(Given(build, data), {}, replicas_of(1), 1, np.zeros((2, 6), "float32"))
        return structure_key(model, scalars_of(model), vouched, batch)

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


class Unwritable(keras.Model):
    """A model that Keras cannot serialise, with a hidden layer."""

    def __init__(self, made):
        super().__init__()
        self.made = made
        self.out = layers.Dense(3)

    def call(self, x):
        return self.out(x)

    def get_config(self):
        raise NotImplementedError


def subclassed(optimizer=None):
    def build(config):
        model = Unwritable(object())
        model.compile((optimizer or sgd())(), "mse")
        return model

    return build


def twice(x):
    return x * 2


def with_callable_rate(config):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    model.compile(optimizers.SGD(lambda: 0.1), "mse")
    return model


HIDING = {
    "lambda layer": mlp(extra=lambda: [layers.Lambda(lambda x: x * 2)]),
    "function as loss": mlp(loss=lambda: lambda y, p: keras.ops.mean((y - p[:, 0]) ** 2)),
    "function as metric": mlp(metrics=lambda: [lambda y, p: keras.ops.mean(p)]),
    "lambda as activation": mlp(activation=lambda x: x * 2),
    "function as activation": mlp(activation=twice),
    "own layer": mlp(extra=lambda: [Scaled()]),
    "subclassed model": subclassed(),
    "callable learning rate": with_callable_rate,
}


@pytest.mark.parametrize("build", HIDING.values(), ids=HIDING)
def test_a_model_that_may_hide_something_has_no_key(build, key_of):
    assert key_of(build) is None


@pytest.mark.parametrize("build", HIDING.values(), ids=HIDING)
def test_a_model_that_the_user_vouches_for_has_a_key(build, key_of):
    assert key_of(build, vouched="one") == key_of(build, vouched="one") is not None
    assert key_of(build, vouched="one") != key_of(build, vouched="other")


def test_vouching_for_a_model_does_not_hide_its_optimizer(key_of):
    keys = [key_of(subclassed(o), vouched=1) for o in (sgd(), sgd(nesterov=True), adam())]

    assert len(set(keys)) == 3


def test_the_scalars_are_in_place_again_after_the_key(replicas_of):
    workload = Given(mlp(optimizer=adam(beta_1=0.7), dropout=0.3), DATA)
    model = built(workload, replicas_of(1))
    structure_key(model, scalars_of(model), None, ())

    assert (model.optimizer.beta_1, model.layers[1].rate) == (0.7, 0.3)


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
