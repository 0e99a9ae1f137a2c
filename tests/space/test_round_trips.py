"""Search spaces through YAML, Ray and Optuna and back, both ends of every range included."""

import io

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parameters_strategy import deep_spaces
from ruamel.yaml import YAML

from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, flatten, nest
from tune_tf.space.optuna_form import labels, to_distribution

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ends(parameter):
    """Return the first and the last value of a parameter."""
    match parameter:
        case Float(low, high) | Int(low, high):
            return low, high
        case Choice(options):
            return options[0], options[-1]
        case Constant(value):
            return value, value


def is_active(space, path, values):
    """Return whether the conditions of a parameter hold, those of its parents included."""
    return all(
        parent in values and any(same(values[parent], value) for value in allowed)
        for parent, allowed in space.parameters[path].condition.items()
    )


def rounded(value):
    """Return what equals a value after arithmetic with floats."""
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def same(value, allowed):
    """Return whether two values are equal, of two floats after arithmetic with them."""
    if isinstance(value, float) and isinstance(allowed, float):
        return value == pytest.approx(allowed, rel=1e-9, abs=1e-15)
    return value == allowed


def near(parameter, side):
    """Return an end of a parameter, as near as a draw comes to it."""
    end = ends(parameter)[side]
    if isinstance(parameter, Float) and not parameter.step:
        return pytest.approx(end, rel=1e-7, abs=1e-7 * (parameter.high - parameter.low))
    return rounded(end)


def config_at(space, sides):
    """Return the flat config whose active parameters stand at one of their ends each.

    Args:
        space: The search space.
        sides: 0 for the first and 1 for the last value, by path.
    """
    values = {}
    for path, parameter in space.parameters.items():
        if is_active(space, path, values):
            values[path] = ends(parameter)[sides[path]]
    return values


@st.composite
def spaces_with_sides(draw):
    """A space, and an end for each of its parameters."""
    space = draw(deep_spaces())
    side = st.integers(0, 1)
    return space, {path: draw(side) for path in space.parameters}


def yaml_of(space):
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(space.to_dict(), text)
    return text.getvalue()


@given(deep_spaces())
@MANY
def test_yaml_text_comes_back_as_the_same_space_and_the_same_text(space):
    text = yaml_of(space)
    again = SearchSpace.from_yaml(text)

    assert again == space
    assert again.to_dict() == space.to_dict()
    assert yaml_of(again) == text


@given(spaces_with_sides())
@MANY
def test_optuna_settles_on_exactly_the_active_parameters_at_both_ends(given):
    space, sides = given
    config = config_at(space, sides)
    stored = {
        path: labels(space.parameters[path].options)[-sides[path]]
        if isinstance(space.parameters[path], Choice)
        else value
        for path, value in config.items()
    }

    trial = optuna.trial.FixedTrial(stored)
    assert space.to_optuna()(trial) == config
    assert set(trial.distributions) == {
        path for path in config if not isinstance(space.parameters[path], Constant)
    }
    assert space.validate(nest(config)) == []


@given(deep_spaces())
@MANY
def test_optunas_distributions_have_our_ends(space):
    for path, parameter in space.parameters.items():
        if isinstance(parameter, Constant):
            assert path not in space.distributions()
            continue
        there = to_distribution(parameter)
        first, last = (
            (there.choices[0], there.choices[-1])
            if isinstance(parameter, Choice)
            else (there.low, there.high)
        )
        expected = labels(parameter.options) if isinstance(parameter, Choice) else ends(parameter)
        assert (first, last) == (expected[0], expected[-1])
        assert space.distributions()[path] == there


def test_a_condition_on_a_stepped_float_survives_its_rounding():
    space = SearchSpace({"a": Float(0, 0.5, step=0.1), "b": Int(1, 2, when={"a": 0.3})})
    third = 3 * 0.1  # as samplers count
    assert third != 0.3
    trial = optuna.trial.FixedTrial({"a": third, "b": 1})
    assert space.to_optuna()(trial) == {"a": third, "b": 1}
    assert space.active({"a": third, "b": 1}) == {"a": third, "b": 1}


class AtAnEnd(np.random.Generator):
    """A generator whose every draw is the first or the last that it could be.

    Args:
        side: 0 for the first, 1 for the last.
    """

    def __init__(self, side):
        super().__init__(np.random.PCG64(0))
        self._side = side

    def uniform(self, low=0.0, high=1.0, size=None):
        # Never the end itself: NumPy leaves out the upper one, and exp(log(low)) may be below low.
        share = (1e-9, 1 - 1e-9)[self._side]
        return np.full(size, low + share * (high - low))

    def integers(self, low, high=None, size=None):
        return np.full(size, (low, high - 1)[self._side])

    def choice(self, options, size=None, replace=True, p=None):
        options = np.arange(options) if isinstance(options, int) else options
        return np.full(size, options[-self._side])


@given(deep_spaces())
@MANY
def test_a_space_comes_back_from_ray_with_its_conditions(space):
    again = SearchSpace.from_ray(space.to_ray())

    assert again == space
    assert {path: it.condition for path, it in again.parameters.items()} == {
        path: it.condition for path, it in space.parameters.items()
    }
    assert again.to_dict() == space.to_dict()


@pytest.mark.parametrize("side", [0, 1], ids=["first", "last"])
@given(space=deep_spaces())
@MANY
def test_ray_draws_exactly_our_ends(side, space):
    from ray.tune.search.variant_generator import generate_variants

    spec = {"config": space.to_ray(), "run": "x"}
    ((_, resolved),) = generate_variants(spec, random_state=AtAnEnd(side))
    drawn = flatten(space.active(resolved["config"]), space.parameters)

    assert set(drawn) == {path for path in space.parameters if is_active(space, path, drawn)}
    for path, value in drawn.items():
        assert value == near(space.parameters[path], side)
    assert space.validate(resolved["config"]) == []
