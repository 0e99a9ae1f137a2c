"""Which models share a traced program."""

import keras
import pytest
from structure_models import adam, mlp, sgd, subclassed

layers, optimizers, losses = keras.layers, keras.optimizers, keras.losses
schedules = optimizers.schedules


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


def test_a_workload_can_tell_models_further_apart(key_of):
    assert key_of(mlp(), vouched="one") == key_of(mlp(), vouched="one") is not None
    assert key_of(mlp(), vouched="one") != key_of(mlp(), vouched="other")


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
