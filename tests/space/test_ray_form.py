"""The search space in Ray Tune's terms."""

import numpy as np
import pytest
from ray import tune
from ray.tune.search.variant_generator import generate_variants

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace


@pytest.mark.parametrize(
    "domain",
    [
        tune.randint(1, 4),
        tune.lograndint(1, 4),
        tune.qrandint(2, 6, 2),
        tune.uniform(0, 1),
        tune.loguniform(0.1, 1),
        tune.quniform(0.5, 1.5, 0.5),
        tune.choice(["a", None]),
        3,
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_space_holds_what_ray_samples(domain):
    space = SearchSpace.from_ray({"a": domain})
    rng = np.random.default_rng(0)
    spec = {"config": {"a": domain}, "run": "x"}
    for _ in range(100):
        ((_, found),) = generate_variants(spec, random_state=rng)
        assert space.validate(found["config"]) == []


@pytest.mark.parametrize(
    ("domain", "parameter"),
    [
        (tune.qrandint(1, 9, 4), Int(4, 8, step=4)),  # snaps inwards
        (tune.qrandint(1, 9, 1), Int(1, 8)),
        (tune.lograndint(1, 9), Int(1, 8, log=True)),
        (tune.qrandint(2, 6, 2), Int(2, 6, step=2)),
        (tune.uniform(0, 1), Float(0, 1)),
        (tune.loguniform(0.1, 1), Float(0.1, 1, log=True)),
        (tune.quniform(0.5, 1.5, 0.5), Float(0.5, 1.5, step=0.5)),
        (tune.choice(["a", None]), Choice(["a", None])),
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
