"""One traced program serves every value of the scalars that it carries."""

import keras
import pytest
from trials import SEED, Given, begin, draw, furthest_values, run_eagerly, run_fresh

from tune_tf.training.core import scalars
from tune_tf.training.core.loop import GraphLoop

pytestmark = pytest.mark.tf

layers, optimizers, regularizers = keras.layers, keras.optimizers, keras.regularizers
schedules = optimizers.schedules
EPOCHS = 2
DATA = draw(20)

# Everything carried at once, with values that matter within a few updates.
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
GUARD = (
    "SGD.momentum",
    "AdamW.weight_decay",
    "Adam.clipnorm",
    "ExponentialDecay.initial_learning_rate",
    "Dropout.rate",
    "L2.l2",
)
_VALUES = {
    "learning_rate": (0.02, 0.1),
    "momentum": (0.9, 0.5),
    "rho": (0.9, 0.5),
    "beta_1": (0.9, 0.5),
    "beta_2": (0.99, 0.5),
    "epsilon": (1e-2, 1.0),
    "weight_decay": (0.1, 0.6),
    "clipnorm": (0.05, 0.2),
    "clipvalue": (0.01, 0.05),
    "global_clipnorm": (0.05, 0.3),
}


def of_optimizer(optimizer, config):
    """Return a classifier with an optimizer class and its arguments."""
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(3)]
    )
    model.compile(optimizer(**config), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def of_layer(layer, config):
    """Return a classifier with a layer made of a config."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4), layer(config), layers.Dense(3)])
    model.compile(optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _optimizer_cases():
    for optimizer, attributes in scalars._TRACEABLE.items():
        if not issubclass(optimizer, optimizers.Optimizer):
            continue
        for clip in _CLIPS:
            others = [a for a in attributes if a not in _CLIPS] if clip == "clipnorm" else []
            base = {a: _VALUES[a][0] for a in ("learning_rate", *attributes) if a not in _CLIPS}
            base[clip] = _VALUES[clip][0]
            for attribute in (*(("learning_rate", *others) if others else ()), clip):
                name = f"{optimizer.__name__}.{attribute}"
                yield pytest.param(
                    optimizer, base, attribute, id=f"{name}.{clip}", marks=_marks_of(name)
                )


def _marks_of(name):
    """Return the marks of a test of a scalar: one of each kind is in the guard of all changes."""
    return () if name in GUARD else pytest.mark.slow


@pytest.fixture(scope="module")
def warm_loops():
    """Loops by model, each with the program that the first trial traced."""
    return {}


def _values_after(loop, workload, config):
    begin(loop, workload, config)
    for _ in range(EPOCHS):
        loop.epoch()
    model = loop.trial.program.model
    values = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    loop.finish()
    return values


@pytest.mark.parametrize(("optimizer", "base", "attribute"), list(_optimizer_cases()))
def test_a_scalar_of_an_optimizer_is_carried(optimizer, base, attribute, replicas_of, warm_loops):
    workload = Given(lambda config: of_optimizer(optimizer, config), DATA)
    name = (optimizer, *base)
    if name not in warm_loops:
        loop = GraphLoop(replicas_of(1))
        warm_loops[name] = loop, _values_after(loop, workload, base)
    loop, before = warm_loops[name]
    config = base | {attribute: _VALUES[attribute][1]}

    carried = _values_after(loop, workload, config)

    assert furthest_values(carried, run_eagerly(workload, replicas_of(1), config)) <= 1e-6
    assert furthest_values(carried, before) > 1e-5, "the value does not matter: test another"
    assert loop.num_programs == 1


def _by_schedule(schedule):
    return lambda config: of_optimizer(
        optimizers.SGD, {"learning_rate": schedule(**config), "momentum": 0.5}
    )


def _by_layer(layer):
    return lambda config: of_layer(layer, config)


def _by_regularizer(regularizer):
    return _by_layer(lambda c: layers.Dense(4, kernel_regularizer=regularizer(**c)))


def _shaped(shape, layer):
    return lambda c: keras.Sequential([layers.Reshape(shape), layer(**c), layers.Flatten()])


OTHERS = {
    "ExponentialDecay.initial_learning_rate": (
        _by_schedule(lambda r: schedules.ExponentialDecay(r, 3, 0.9)), {"r": 0.1}, {"r": 0.3},
    ),
    "ExponentialDecay.decay_rate": (
        _by_schedule(lambda d: schedules.ExponentialDecay(0.1, 2, d)), {"d": 0.9}, {"d": 0.3},
    ),
    "CosineDecay.initial_learning_rate": (
        _by_schedule(lambda r: schedules.CosineDecay(r, 9)), {"r": 0.1}, {"r": 0.3},
    ),
    "CosineDecay.alpha": (
        _by_schedule(lambda a: schedules.CosineDecay(0.1, 4, alpha=a)), {"a": 0.1}, {"a": 0.5},
    ),
    "CosineDecay.warmup_target": (
        _by_schedule(
            lambda w: schedules.CosineDecay(0.1, 9, warmup_target=w, warmup_steps=3)
        ), {"w": 0.2}, {"w": 0.5},
    ),
    "PolynomialDecay.initial_learning_rate": (
        _by_schedule(lambda r: schedules.PolynomialDecay(r, 9)), {"r": 0.1}, {"r": 0.3},
    ),
    "PolynomialDecay.end_learning_rate": (
        _by_schedule(lambda e: schedules.PolynomialDecay(0.1, 4, e)), {"e": 0.01}, {"e": 0.05},
    ),
    "InverseTimeDecay.initial_learning_rate": (
        _by_schedule(lambda r: schedules.InverseTimeDecay(r, 3, 0.5)), {"r": 0.1}, {"r": 0.3},
    ),
    "InverseTimeDecay.decay_rate": (
        _by_schedule(lambda d: schedules.InverseTimeDecay(0.1, 3, d)), {"d": 0.5}, {"d": 2.0},
    ),
    "Dropout.rate": (_by_layer(lambda c: layers.Dropout(**c)), {"rate": 0.2}, {"rate": 0.6}),
    "SpatialDropout1D.rate": (
        _by_layer(_shaped((2, 2), layers.SpatialDropout1D)), {"rate": 0.2}, {"rate": 0.6},
    ),
    "SpatialDropout2D.rate": (
        _by_layer(_shaped((1, 2, 2), layers.SpatialDropout2D)), {"rate": 0.2}, {"rate": 0.6},
    ),
    "SpatialDropout3D.rate": (
        _by_layer(_shaped((1, 1, 2, 2), layers.SpatialDropout3D)), {"rate": 0.2}, {"rate": 0.6},
    ),
    "GaussianNoise.stddev": (
        _by_layer(lambda c: layers.GaussianNoise(**c)), {"stddev": 0.2}, {"stddev": 0.6},
    ),
    "L1.l1": (_by_regularizer(regularizers.L1), {"l1": 0.01}, {"l1": 0.1}),
    "L2.l2": (_by_regularizer(regularizers.L2), {"l2": 0.01}, {"l2": 0.1}),
    "L1L2.l1": (
        _by_regularizer(regularizers.L1L2), {"l1": 0.01, "l2": 0.1}, {"l1": 0.1, "l2": 0.1},
    ),
    "L1L2.l2": (
        _by_regularizer(regularizers.L1L2), {"l1": 0.1, "l2": 0.01}, {"l1": 0.1, "l2": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("build", "first", "second"),
    [pytest.param(*case, id=name, marks=_marks_of(name)) for name, case in OTHERS.items()],
)
def test_a_scalar_of_a_model_is_carried(build, first, second, replicas_of):
    workload = Given(build, DATA)
    loop = GraphLoop(replicas_of(1))
    before = _values_after(loop, workload, first)

    carried = _values_after(loop, workload, second)

    assert furthest_values(carried, run_eagerly(workload, replicas_of(1), second)) <= 1e-6
    assert furthest_values(carried, before) > 1e-5, "the value does not matter: test another"
    assert loop.num_programs == 1


def test_every_carried_scalar_is_tested():
    tested = set(OTHERS) | {
        f"{case.values[0].__name__}.{case.values[2]}" for case in _optimizer_cases()
    }

    assert tested >= {f"{o.__name__}.{a}" for o, names in scalars._TRACEABLE.items() for a in names}


@pytest.mark.slow
def test_several_replicas_carry_too(replicas_of):
    def build(config):
        return of_optimizer(optimizers.SGD, config)

    workload = Given(build, DATA)
    loop = GraphLoop(replicas_of(2))
    first = {"learning_rate": 0.1, "momentum": 0.5, "global_clipnorm": 0.1, "weight_decay": 0.1}
    second = {"learning_rate": 0.2, "momentum": 0.9, "global_clipnorm": 0.03, "weight_decay": 0.01}
    _values_after(loop, workload, first)

    carried = _values_after(loop, workload, second)

    assert (
        furthest_values(carried, run_fresh(workload, replicas_of(1), second, SEED, EPOCHS)[1])
        <= 1e-6
    )
    assert loop.num_programs == 1


@pytest.mark.parametrize(
    "first",
    [
        pytest.param({"momentum": 0.0}, id="zero"),
        pytest.param({"clipnorm": None}, id="none", marks=pytest.mark.slow),
        pytest.param({"weight_decay": None}, id="no decay", marks=pytest.mark.slow),
    ],
)
def test_scalars_that_switch_code_off_need_their_own_program(first, replicas_of):
    base = {"learning_rate": 0.1, "momentum": 0.5, "clipnorm": 0.1, "weight_decay": 0.1}
    workload = Given(lambda config: of_optimizer(optimizers.SGD, config), DATA)
    loop = GraphLoop(replicas_of(1))
    _values_after(loop, workload, base | first)

    values = _values_after(loop, workload, base)

    assert furthest_values(values, run_eagerly(workload, replicas_of(1), base)) <= 1e-6
    assert loop.num_programs == 2
