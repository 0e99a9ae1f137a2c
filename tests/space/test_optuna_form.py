"""The search space in Optuna's terms."""

import pickle

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from parameters_strategy import spaces

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, flatten, nest
from tune_tf.space.optuna_form import OptunaSpace, labels, option_of


def asked(space, params):
    """Return the flat config for parameters that Optuna has settled on."""
    return OptunaSpace(space)(optuna.trial.FixedTrial(params))


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_every_config_comes_back_from_optuna(space):
    config = space.sample(np.random.default_rng(0))
    values = flatten(config, space.parameters)
    choices = {
        path: labels(space.parameters[path].options)[space.parameters[path].options.index(value)]
        for path, value in values.items()
        if isinstance(space.parameters[path], Choice)
    }
    assert nest(asked(space, {**values, **choices})) == config


@pytest.mark.parametrize(
    ("parameter", "low", "high"),
    [
        (Float(0.5, 2), 0.5, 2.0),
        (Float(1e-4, 0.1, log=True), 1e-4, 0.1),
        (Float(0.05, 0.95, step=0.1), 0.05, 0.95),
        (Int(1, 3), 1, 3),
        (Int(1, 3, log=True), 1, 3),
        (Int(1, 7, step=3), 1, 7),
    ],
)
def test_both_ends_are_optunas_too(parameter, low, high):
    space = SearchSpace({"a": parameter, "b": Constant(1)})
    assert list(space.distributions()) == ["a"]
    assert (space.distributions()["a"].low, space.distributions()["a"].high) == (low, high)
    for value in (low, high):
        assert asked(space, {"a": value}) == {"a": value, "b": 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([None, True, 3, 0.5, "a"], [None, True, 3, 0.5, "a"]),
        ([[3, 3], (5, 5)], ["[3, 3]", "(5, 5)"]),
        ([{"a": 1}], ["{'a': 1}"]),
        (["[1]", [1]], ["0: [1]", "1: [1]"]),
        ([np.tanh.__class__], ["numpy.ufunc"]),
        ([pickle.dumps], ["_pickle.dumps"]),
    ],
)
def test_options_have_labels_that_lead_back(options, expected):
    assert labels(options) == expected
    assert [option_of(label, options) for label in labels(options)] == options


@pytest.mark.parametrize("option", [object(), lambda: 1], ids=["object", "lambda"])
def test_options_without_a_stable_text_are_refused(option):
    with pytest.raises(InvalidSettingsError, match=r"^g.a: option .* cannot be stored by Optuna"):
        OptunaSpace(SearchSpace({"g": {"a": Choice([option])}}))


@given(spaces())
@settings(max_examples=40, deadline=None)
def test_only_active_parameters_are_suggested_and_all_of_them_in_the_dense_form(space):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trial = study.ask()
    config = OptunaSpace(space, dense=True)(trial)
    assert trial.params.keys() == space.distributions().keys()
    assert space.validate(nest(config)) == []
    fixed = optuna.trial.FixedTrial(trial.params)
    assert pickle.loads(pickle.dumps(OptunaSpace(space)))(fixed) == config
    assert set(fixed.distributions) == set(config) & set(space.distributions())
