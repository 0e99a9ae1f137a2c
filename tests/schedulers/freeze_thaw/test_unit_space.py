"""Points of a search space as numbers."""

import math

import numpy as np
import pytest

from tune_tf.schedulers.unit_space import UnitSpace
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, nest

RANGES = {
    "float": Float(-2.0, 3.0),
    "log float": Float(1e-5, 1e-1, log=True),
    "stepped float": Float(0.1, 1.7, step=0.1),
    "int": Int(-3, 4),
    "log int": Int(1, 300, log=True),
    "stepped int": Int(16, 128, step=16),
    "int of one value": Int(5, 5),
    "log int of one value": Int(5, 5, log=True),
    "stepped float of one value": Float(0.5, 0.5, step=0.1),
}
CHOICES = {
    "texts": Choice(["adam", "sgd", "[1, 2]"]),
    "none and lists": Choice([None, [1, 2], [], "None"]),
    "bools": Choice([True, False]),
    "dicts": Choice([{"a": 1}, {"a": {"b": 2}}]),
    "one option": Choice(["only"]),
    "two numbers": Choice([16, 64]),
    "numbers and others": Choice([16, 32, "64"]),
    "numbers and bools": Choice([2, 3, True]),
}
NUMBERS = {
    "numbers": Choice([64, 8, 16, 256, 32]),
    "whole and other numbers": Choice([0.5, 0, -3, math.inf, 2]),
    "NumPy's numbers": Choice(list(np.array([3, 1, 5, 2, 4]))),
    "large numbers": Choice([10**400, 1, 2, 3, -(10**400)]),
}
SPACES = {
    name: SearchSpace({"a": each}) for name, each in {**RANGES, **CHOICES, **NUMBERS}.items()
} | {
    "groups": SearchSpace(
        {"g": {"a": Float(0, 1), "h": {"b": Int(1, 3), "c": Choice(["x", "y"])}}, "d": 7}
    ),
    "conditions": SearchSpace(
        {
            "optimizer": {
                "momentum": Float(0, 0.9, when={"optimizer/kind": ["sgd", "lion"]}),
                "kind": Choice(["sgd", "adam", "lion"]),
                "nesterov": Choice([True, False], when={"optimizer/kind": "sgd"}),
            },
            "decay": Float(1e-4, 1, log=True, when={"optimizer/nesterov": True}),
            "fixed": Constant([1, 2], when={"optimizer/kind": "adam"}),
            "depth": Int(1, 3),
            "width": Int(8, 64, step=8, when={"depth": [2, 3]}),
            "size": Float(0.1, 0.3, step=0.1),
            "last": Float(1, 2, when={"size": 0.3, "width": 16}),
        }
    ),
}


def drawn_and_perturbed(space, count=60):
    unit, rng = UnitSpace(space), np.random.default_rng(3)
    drawn = unit.draw(count, rng)
    perturbed = [unit.perturb(point, 4, rng) for point in drawn[: count // 2]]
    return unit, np.concatenate([drawn, *perturbed])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_space_contains_the_config_of_every_point(space):
    unit, points = drawn_and_perturbed(space)
    for point in points:
        assert space.validate(nest(unit.decode(point))) == []


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_points_config_is_that_point_again(space):
    unit, points = drawn_and_perturbed(space)
    again = np.array([unit.encode(unit.decode(point)) for point in points])
    np.testing.assert_allclose(again, points, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_features_are_finite_and_small_and_belong_to_a_column_each(space):
    unit, points = drawn_and_perturbed(space)
    features = unit.features(points)
    assert features.shape == (len(points), len(unit.groups))
    assert features.min() >= 0
    assert features.max() <= 1
    assert sorted(set(unit.groups.tolist())) == list(range(len(unit)))


@pytest.mark.parametrize("parameter", NUMBERS.values(), ids=NUMBERS)
def test_numbers_to_choose_from_are_a_range_of_steps_in_their_order(parameter):
    unit = UnitSpace(SearchSpace({"a": parameter}))
    points = np.concatenate([unit.encode({"a": each}) for each in sorted(parameter.options)])
    np.testing.assert_allclose(points, [0.1, 0.3, 0.5, 0.7, 0.9])
    assert unit.num_ranges == 1
    np.testing.assert_array_equal(unit.features(points[:, None])[:, 0], points)
    drawn = [unit.decode(each)["a"] for each in unit.draw(4000, np.random.default_rng(0))]
    counts = [drawn.count(each) for each in parameter.options]
    np.testing.assert_allclose(np.array(counts) / 4000, 0.2, atol=0.04)


@pytest.mark.parametrize("name", ["int", "stepped int", "stepped float"])
def test_steps_are_drawn_equally_often_the_ends_too(name):
    unit = UnitSpace(SPACES[name])
    values = [unit.decode(point)["a"] for point in unit.draw(4000, np.random.default_rng(0))]
    num_values = RANGES[name].num_steps + 1
    _, counts = np.unique(np.round(values, 6), return_counts=True)
    assert len(counts) == num_values
    np.testing.assert_allclose(counts * num_values / 4000, 1, atol=0.3)


def test_a_perturbed_point_is_near_in_most_of_its_columns():
    space = SearchSpace(
        {f"x{number}": Float(0, 1) for number in range(4)} | {"c": Choice(["a", "b", "c"])}
    )
    unit, rng = UnitSpace(space), np.random.default_rng(0)
    base = np.array([0.5, 0.5, 0.5, 0.5, 1.0])
    points = unit.perturb(base, 500, rng)
    moved = np.abs(points - base)
    assert moved[:, :4].max() > 0.3  # some go far
    assert np.median(moved[:, :4][moved[:, :4] > 0]) < 0.1
    assert 0.3 < (moved[:, :4] == 0).mean() < 0.5
    assert 0.05 < (moved[:, 4] > 0).mean() < 0.2
    assert base.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]


def test_what_becomes_active_in_a_perturbed_point_is_drawn():
    unit, rng = UnitSpace(SPACES["conditions"]), np.random.default_rng(0)
    base = unit.encode({"optimizer/kind": "adam", "depth": 1, "size": 0.1})
    configs = [unit.decode(point) for point in unit.perturb(base, 400, rng)]
    momenta = [each["optimizer/momentum"] for each in configs if "optimizer/momentum" in each]
    widths = {each.get("width") for each in configs}
    assert len(momenta) > 10
    assert max(momenta) - min(momenta) > 0.4
    assert None in widths
    assert len(widths) > 4


def test_options_and_absence_lie_far_apart_in_positions_and_ranges_by_their_difference():
    parameters = {"c": Choice(["a", "b"]), "n": Int(1, 2), "x": Float(0, 1, when={"n": 2})}
    unit = UnitSpace(SearchSpace(parameters))
    points = [[0, 0.75, 0.0], [0, 0.75, 1.0], [0, 0.75, 0.25], [1, 0.75, 0.0], [0, 0.25, np.nan]]
    positions = unit.positions(np.array(points))
    assert np.isfinite(positions).all()
    distances = np.abs(positions - positions[0]).max(1)
    assert distances[:3].tolist() == [0.0, 1.0, 0.25]
    assert distances[3:].min() > 2


@pytest.mark.parametrize("value", [-2.1, 3.5, None, "1", True, math.nan])
def test_a_value_outside_of_the_space_counts_as_inactive(value):
    unit = UnitSpace(SearchSpace({"a": Float(-2, 3), "b": Int(1, 3), "c": Choice(["x", [1]])}))
    point = unit.encode({"a": value, "b": 2, "c": "y", "unknown": 3})
    np.testing.assert_array_equal(np.isnan(point), [True, False, True])
    points = unit.perturb(point, 5, np.random.default_rng(0))
    assert np.isfinite(points).all()
