from types import MappingProxyType

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FixedTrial

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.space_adapter import suggest_of
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

DISTRIBUTIONS = {
    "rate": FloatDistribution(1e-4, 1e-1, log=True),
    "layer/units": IntDistribution(8, 64, step=8),
    "activation": CategoricalDistribution(["relu", "tanh"]),
}


def define(trial):
    return {"rate": trial.suggest_float("rate", 0, 1)}


def test_a_dict_of_distributions_is_suggested_as_optuna_does_itself():
    def drawn(ask):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
        return [ask(study) for _ in range(5)]

    suggest = suggest_of(DISTRIBUTIONS)
    assert drawn(lambda study: suggest(study.ask())) == drawn(
        lambda study: study.ask(DISTRIBUTIONS).params
    )


CONDITIONAL = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "one": Int(3, 3, when={"optimizer": "sgd"}),
        "batch": Constant(32, when={"optimizer": "adam"}),
    }
)


def test_a_dense_space_suggests_inactive_parameters_and_leaves_them_out():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    suggest = suggest_of(CONDITIONAL, dense=True)
    for _ in range(10):
        trial = study.ask()
        config = suggest(trial)
        assert trial.params.keys() == {"optimizer", "momentum", "one"}
        assert CONDITIONAL.validate(config) == []


def asks(returned):
    def space(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("layer/rate", 0, 1)
        trial.suggest_int("units", low=4, high=8)
        return returned

    return space


@pytest.mark.parametrize(
    ("returned", "more"),
    [
        (None, {}),
        ({}, {}),
        ({"constant": 1}, {"constant": 1}),
        ({"units": 99}, {"units": 99}),
        ({"group": {"x": 1}, "list": [1]}, {"group": {"x": 1}, "list": [1]}),
        (MappingProxyType({"constant": None}), {"constant": None}),
    ],
)
@pytest.mark.parametrize("kind", ["a", "b"])
def test_config_holds_suggested_and_returned_values_of_a_function(kind, returned, more):
    drawn = {"kind": kind, "units": 5} | ({"layer/rate": 0.5} if kind == "a" else {})
    assert suggest_of(asks(returned))(FixedTrial(drawn)) == drawn | more


def drawn_by(space):
    return suggest_of(space)(FixedTrial({"kind": "b", "units": 5}))


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (["rate"], r"space must be a SearchSpace.* not list"),
        ({"a": 1, "b": [1], "c": FloatDistribution(0, 1)}, r"(?s)2 errors.*a: must.*b: must"),
        *[(asks(each), "the function space returned .* return None or") for each in (1, {3: 4})],
    ],
)
def test_what_is_no_space_is_refused(space, match):
    with pytest.raises(InvalidSettingsError, match=match):
        drawn_by(space)


def test_functions_give_the_configs_that_they_give_under_rays_own_searcher():
    from ray.tune.search.optuna import OptunaSearch

    from tune_tf.objective import Objective
    from tune_tf.searchers import OptunaSearcher

    space = asks({"constant": {"x": 1}})
    sampler = optuna.samplers.RandomSampler
    theirs = OptunaSearch(space, metric="loss", mode="min", sampler=sampler(seed=3))
    ours = OptunaSearcher(space, Objective("loss", "min"), sampler(seed=3))
    for name in "abcdef":
        assert ours.suggest(name) == theirs.suggest(name)
