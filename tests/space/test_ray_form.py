"""The search space in Ray Tune's terms."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from parameters_strategy import spaces
from ray import tune
from ray.tune.search.variant_generator import generate_variants

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, nest
from tune_tf.space.ray_form import to_domain


def domains(space):
    """Return Ray's domains of a space without conditions."""
    return nest({path: to_domain(parameter) for path, parameter in space.parameters.items()})


def resolved(space, num_samples):
    """Return the configs that Ray's random search finds."""
    rng = np.random.default_rng(0)
    spec = {"config": domains(space), "run": "x"}
    return [
        config["config"]
        for _ in range(num_samples)
        for _, config in generate_variants(spec, random_state=rng)
    ]


@given(spaces(conditions=False))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_space_comes_back_from_ray_and_holds_what_ray_samples(space):
    again = SearchSpace.from_ray(domains(space))
    assert again == space
    assert again.to_dict() == space.to_dict()
    (config,) = resolved(space, 1)
    assert space.validate(config) == []


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (Int(1, 3), {1, 2, 3}),
        (Int(1, 3, log=True), {1, 2, 3}),
        (Int(2, 6, step=2), {2, 4, 6}),
        (Int(1, 7, step=3), {1, 4, 7}),  # beside Ray's grid
        (Float(0.5, 1.5, step=0.5), {0.5, 1.0, 1.5}),
        (Float(0.25, 1.25, step=0.5), {0.25, 0.75, 1.25}),  # beside Ray's grid
        (Choice(["a", None]), {"a", None}),
        (Constant(3), {3}),
    ],
)
def test_ray_samples_both_ends(parameter, values):
    assert {each["a"] for each in resolved(SearchSpace({"a": parameter}), 100)} == values


@pytest.mark.parametrize(
    ("domain", "parameter"),
    [
        (tune.qrandint(1, 9, 4), Int(4, 8, step=4)),  # snaps inwards
        (tune.qrandint(1, 9, 1), Int(1, 8)),
        (tune.lograndint(1, 9), Int(1, 8, log=True)),
        (tune.uniform(0, 1), Float(0, 1)),
        ([1, 2], Constant([1, 2])),
    ],
)
def test_rays_ends_are_understood(domain, parameter):
    assert SearchSpace.from_ray({"a": domain}).parameters["a"] == parameter


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"a": tune.grid_search([1, 2])},
            "a.grid_search: is no range .*write tune.choice\\(\\[1, 2\\]\\)",
        ),
        ({"a": [tune.uniform(0, 1)]}, "a: holds domains"),
        ({"a/b": 1}, "a name must not be empty or contain"),
        ({"a": {"b": tune.randn()}}, "a.b: Ray's Float.*has no counterpart"),
        ({"a": {"b": tune.qloguniform(1, 8, 1)}}, "a.b.step: is 1, but a logarithmic range has no"),
        ({"a": tune.sample_from(lambda spec: 1)}, "a: Ray's Function.*has no counterpart"),
        ({3: 1}, "a name must be text"),
        ({"a": tune.choice([tune.uniform(0, 1)])}, "a: holds domains"),
        ({"a": tune.choice([{"b": tune.uniform(0, 1)}])}, "a: holds domains"),
    ],
    ids=range(9),
)
def test_what_a_space_cannot_take_from_ray_is_refused(config, text):
    with pytest.raises(InvalidSettingsError, match=text):
        SearchSpace.from_ray(config)
