"""The search space in Ray Tune's terms."""

import cloudpickle
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from parameters_strategy import conditional_spaces, spaces

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

SLOW = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # the first example imports Ray


def resolved(space, num_samples, seed=0):
    """Return the configs that Ray's random search finds."""
    from ray.tune.search.variant_generator import generate_variants

    rng = np.random.default_rng(seed)
    spec = {"config": space.to_ray(), "run": "x"}
    return [
        config["config"]
        for _ in range(num_samples)
        for _, config in generate_variants(spec, random_state=rng)
    ]


@given(spaces | conditional_spaces())
@SLOW
def test_every_space_comes_back_from_ray(space):
    assert SearchSpace.from_ray(space.to_ray()) == space


@given(spaces | conditional_spaces())
@SLOW
def test_what_ray_samples_is_valid(space):
    (config,) = resolved(space, 1)
    assert space.validate(config) == []


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        pytest.param(Int(1, 3), {1, 2, 3}, id="int"),
        pytest.param(Int(1, 3, log=True), {1, 2, 3}, id="log-int"),
        pytest.param(Int(2, 6, step=2), {2, 4, 6}, id="stepped-int"),
        pytest.param(Int(1, 7, step=3), {1, 4, 7}, id="stepped-int-beside-rays-grid"),
        pytest.param(Float(0.5, 1.5, step=0.5), {0.5, 1.0, 1.5}, id="stepped-float"),
        pytest.param(Float(0.25, 1.25, step=0.5), {0.25, 0.75, 1.25}, id="float-beside-rays-grid"),
        pytest.param(Choice(["a", None]), {"a", None}, id="choice"),
        pytest.param(Constant(3), {3}, id="constant"),
    ],
)
def test_ray_samples_both_ends(parameter, values):
    assert {each["a"] for each in resolved(SearchSpace({"a": parameter}), 100)} == values


def test_an_inactive_parameter_is_none_and_the_seed_counts():
    space = SearchSpace(
        {
            "c": Int(1, 9, when={"g/b": [1, 2]}),
            "g": {"b": Int(1, 3, when={"a": 1})},
            "a": Choice([1, 2]),
        }
    )
    configs = resolved(space, 60)
    found = {(each["a"], each["g"]["b"] is None, each["c"] is None) for each in configs}
    assert found == {(2, True, True), (1, False, True), (1, False, False)}
    assert configs == resolved(space, 60)


def test_domains_with_conditions_reach_other_processes():
    space = SearchSpace({"b": Int(1, 3, when={"a": 1}), "a": Choice([1, 2])})
    assert SearchSpace.from_ray(cloudpickle.loads(cloudpickle.dumps(space.to_ray()))) == space


def test_a_grid_too_long_to_list_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"^a: a grid of 500001 values from 1 by 2"):
        SearchSpace({"a": Int(1, 1_000_001, step=2)}).to_ray()


@pytest.mark.parametrize(
    ("domain", "parameter"),
    [
        pytest.param(("qrandint", 1, 9, 4), Int(4, 8, step=4), id="qrandint-snaps-inwards"),
        pytest.param(("qrandint", 1, 9, 1), Int(1, 8), id="qrandint-of-1-excludes"),
        pytest.param(("lograndint", 1, 9), Int(1, 8, log=True), id="lograndint-excludes"),
        pytest.param(("uniform", 0, 1), Float(0, 1), id="uniform"),
    ],
)
def test_rays_ends_are_understood(domain, parameter):
    from ray import tune

    name, *ends = domain
    space = SearchSpace.from_ray({"a": getattr(tune, name)(*ends)})
    assert space.parameters["a"] == parameter


@pytest.mark.parametrize("domain", ["randn", "qloguniform", "sample_from"])
def test_domains_without_a_counterpart_are_refused(domain):
    from ray import tune

    arguments = {"randn": (), "qloguniform": (1, 8, 1), "sample_from": (lambda: 1,)}[domain]
    with pytest.raises(InvalidSettingsError, match=r"^g.a: (Ray's|a logarithmic range)"):
        SearchSpace.from_ray({"g": {"a": getattr(tune, domain)(*arguments)}})
