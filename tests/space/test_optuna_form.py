"""The search space in Optuna's terms."""

import pickle

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from parameters_strategy import conditional_spaces, spaces

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, flatten, nest
from tune_tf.space.optuna_form import OptunaSpace, labels, option_of


def asked(space, params):
    """Return the flat config for parameters that Optuna has settled on."""
    return space.to_optuna()(optuna.trial.FixedTrial(params))


@given(spaces | conditional_spaces())
@settings(max_examples=60)
def test_every_config_comes_back_from_optuna(space):
    config = space.sample(np.random.default_rng(0))
    values = flatten(config, space.parameters)
    choices = {
        path: labels(space.parameters[path].options)[space.parameters[path].options.index(value)]
        for path, value in values.items()
        if isinstance(space.parameters[path], Choice)
    }
    assert nest(asked(space, {**values, **choices})) == config


ENDS = {
    "float": (Float(0.5, 2), 0.5, 2.0),
    "log-float": (Float(1e-4, 0.1, log=True), 1e-4, 0.1),
    "stepped-float": (Float(0.05, 0.95, step=0.1), 0.05, 0.95),
    "int": (Int(1, 3), 1, 3),
    "log-int": (Int(1, 3, log=True), 1, 3),
    "stepped-int": (Int(1, 7, step=3), 1, 7),
}


@pytest.mark.parametrize(("parameter", "low", "high"), ENDS.values(), ids=ENDS)
def test_both_ends_are_optunas_too(parameter, low, high):
    distribution = SearchSpace({"a": parameter}).distributions()["a"]
    assert (distribution.low, distribution.high) == (low, high)
    for value in (low, high):
        assert asked(SearchSpace({"a": parameter}), {"a": value}) == {"a": value}


def test_constants_have_no_distribution():
    assert SearchSpace({"a": Constant(1)}).distributions() == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([None, True, 3, 0.5, "a"], [None, True, 3, 0.5, "a"], id="plain"),
        pytest.param([[3, 3], (5, 5)], ["[3, 3]", "(5, 5)"], id="lists"),
        pytest.param([{"a": 1}], ["{'a': 1}"], id="mapping"),
        pytest.param(["[1]", [1]], ["[1]", "[1] (2)"], id="taken"),
        pytest.param([np.tanh.__class__], ["numpy.ufunc"], id="class"),
        pytest.param([pickle.dumps], ["_pickle.dumps"], id="function"),
    ],
)
def test_options_have_labels_that_lead_back(options, expected):
    assert labels(options) == expected
    assert [option_of(label, options) for label in labels(options)] == options


@pytest.mark.parametrize("option", [object(), lambda: 1], ids=["object", "lambda"])
def test_options_without_a_stable_text_are_refused(option):
    with pytest.raises(InvalidSettingsError, match=r"^g.a: option .* cannot be stored by Optuna"):
        SearchSpace({"g": {"a": Choice([option])}}).to_optuna()


CONDITIONAL = SearchSpace(
    {
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "optimizer": Choice(["sgd", "adam"]),
        "filters": Choice([[8, 16], [32]]),
        "epochs": 3,
    }
)


def test_only_active_parameters_are_suggested():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    suggest = pickle.loads(pickle.dumps(CONDITIONAL.to_optuna()))
    found = set()
    for _ in range(20):
        trial = study.ask()
        values = suggest(trial)
        found.add((values["optimizer"], "momentum" in values, "momentum" in trial.params))
    assert found == {("sgd", True, True), ("adam", False, False)}


@given(conditional_spaces())
@settings(max_examples=40)
def test_the_dense_form_suggests_everything_and_gives_the_same_configs(space):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trial = study.ask()
    config = OptunaSpace(space, dense=True)(trial)
    assert trial.params.keys() == space.distributions().keys()
    assert space.validate(nest(config)) == []
    assert config == space.to_optuna()(optuna.trial.FixedTrial(trial.params))


def test_rays_own_optuna_search_takes_the_space():
    from ray.tune.search.optuna import OptunaSearch

    space = SearchSpace({"g": {"a": Int(1, 2), "b": Choice([[1], [2]])}, "c": 3})
    search = OptunaSearch(space=space.to_optuna(), metric="loss", mode="min")
    assert space.validate(search.suggest("one")) == []
