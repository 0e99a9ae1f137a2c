"""A program that cannot carry a scalar is made again without; a trial that diverges is not."""

import math

import keras
import pytest
from trials import Given, begin, bits, draw, furthest, run, run_fresh, run_keras_fit

from tune_tf.training.core import scalars
from tune_tf.training.core.loop import GraphLoop

pytestmark = pytest.mark.tf
layers = keras.layers


def leaky(config):
    """Build a model with a scalar that Keras reads while tracing."""
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.LeakyReLU(config["slope"]), layers.Dense(3)]
    )
    model.compile(
        keras.optimizers.Adam(config.get("rate", 0.01)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


class Scaled(layers.Layer):
    """A layer that takes the C number of its factor, as library code might."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, x):
        return x * float.__mul__(self.factor, 1.0)

    def get_config(self):
        return {"factor": self.factor}


class Rounded(Scaled):
    """The same with a whole number of it, which NaN has not."""

    def call(self, x):
        return x * int(float.__mul__(self.factor, 10.0))


def with_factor(layer):
    def build(config):
        model = keras.Sequential([keras.Input((6,)), layer(config["slope"]), layers.Dense(3)])
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    return build


# With how many programs: that which failed, if so, and one a value.
UNCARRIABLE = {
    "is asked for its number": (leaky, layers.LeakyReLU, "negative_slope", 2),
    "raises while tracing": (with_factor(Rounded), Rounded, "factor", 3),
    "gives NaN": (with_factor(Scaled), Scaled, "factor", 3),
}


@pytest.mark.parametrize(
    ("build", "owner", "attribute", "num_programs"),
    [
        pytest.param(*case, id=name, marks=() if name == "gives NaN" else pytest.mark.slow)
        for name, case in UNCARRIABLE.items()
    ],
)
def test_a_scalar_that_cannot_be_carried_gives_the_right_numbers(
    build, owner, attribute, num_programs, replicas_of, monkeypatch
):
    monkeypatch.setitem(scalars._TRACEABLE, owner, (attribute,))
    workload = Given(build, draw(20, 8), structure=lambda config: "vouched")
    loop = GraphLoop(workload, replicas_of(1))
    for slope in (0.3, 0.6, 0.3):
        config = {"slope": slope}
        by_fit = run_keras_fit(workload, replicas_of(1), config)

        assert furthest(run(loop, workload, config), by_fit) <= 1e-6
    assert loop.num_programs == num_programs


def test_a_restored_trial_is_guarded_too(replicas_of, monkeypatch):
    workload = Given(leaky, draw(20))
    config = {"slope": 0.3}
    straight = GraphLoop(workload, replicas_of(1))
    expected = run(straight, workload, config, epochs=2)
    begin(straight, workload, config)
    straight.epoch()
    saved = straight.state()
    monkeypatch.setitem(scalars._TRACEABLE, layers.LeakyReLU, ("negative_slope",))
    loop = begin(GraphLoop(workload, replicas_of(1)), workload, config)
    loop.restore(saved)

    assert loop.epoch()["loss"] == pytest.approx(expected[0][1]["loss"], rel=1e-6)


@pytest.mark.parametrize("validation", [pytest.param(0, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("first", [True, False], ids=["the first trial", "a later trial"])
def test_a_trial_that_diverges_says_so_and_leaves_the_next_exact(first, validation, replicas_of):
    workload = Given(leaky, draw(20, validation))
    loop = GraphLoop(workload, replicas_of(1))
    good, bad = {"slope": 0.3, "rate": 0.01}, {"slope": 0.3, "rate": float("inf")}
    before = [] if first else [run(loop, workload, good)]
    history, _ = run(loop, workload, bad)
    num_programs = loop.num_programs

    assert math.isnan(history[-1]["loss"])
    fresh = bits(run_fresh(workload, replicas_of(1), good))
    assert bits(run(loop, workload, good)) == fresh
    assert all(bits(outcome) == fresh for outcome in before)
    assert loop.num_programs == num_programs, "divergence was taken for a fault of carrying"


def test_an_error_of_the_model_itself_is_raised(replicas_of):
    class Broken(layers.Layer):
        def call(self, x, training=False):
            if training:
                raise ValueError("no training here")
            return x

    def build(config):
        model = keras.Sequential([keras.Input((6,)), Broken(), layers.Dense(3)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(build, draw(20), structure=lambda config: "vouched")
    with pytest.raises(ValueError, match="no training here"):
        run(GraphLoop(workload, replicas_of(1)), workload)
