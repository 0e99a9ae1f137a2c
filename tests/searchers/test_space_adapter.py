from types import MappingProxyType

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FixedTrial

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.space_adapter import Outline, suggest_of
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


def test_a_search_space_gives_its_own_form():
    trial = optuna.trial.FixedTrial({"rate": 0.5})
    assert suggest_of(SearchSpace({"rate": Float(0, 1), "batch": 32}))(trial) == {
        "rate": 0.5,
        "batch": 32,
    }


def test_what_is_no_space_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"space must be a SearchSpace.* not list"):
        suggest_of(["rate"])


def test_all_values_of_a_dict_that_are_no_distributions_are_told():
    with pytest.raises(InvalidSettingsError, match=r"(?s)2 errors.*a: must.*b: must"):
        suggest_of({"a": 1, "b": [1, 2], "c": FloatDistribution(0, 1)})


@pytest.mark.parametrize(
    ("space", "has"),
    [
        (DISTRIBUTIONS, True),
        ({"rate": DISTRIBUTIONS["rate"]}, False),
        (SearchSpace({"rate": Float(0, 1)}), False),
        (SearchSpace({"rate": Float(0, 1), "act": Choice(["relu", "tanh"])}), True),
        (define, True),
    ],
    ids=["dict with", "dict without", "space without", "space with", "callable: not known"],
)
def test_choices_are_found(space, has):
    assert Outline.of(space).has_choices is has


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


def test_a_space_without_conditions_is_dense_already():
    trial = optuna.trial.FixedTrial({"rate": 0.5})
    assert suggest_of(define, dense=True)(trial) == {"rate": 0.5}


def test_an_outline_names_what_is_searched_and_what_is_conditional():
    outline = Outline.of(CONDITIONAL)
    assert (set(outline.distributions), outline.conditional) == (
        {"optimizer", "momentum"},
        {"momentum"},
    )


@pytest.mark.parametrize(
    ("space", "paths"),
    [(DISTRIBUTIONS, set(DISTRIBUTIONS)), (define, None)],
    ids=["dict", "callable: not known"],
)
def test_an_outline_of_what_has_no_conditions_of_ours(space, paths):
    outline = Outline.of(space)
    found = outline.distributions
    assert (found if found is None else set(found), outline.conditional) == (paths, frozenset())


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


@pytest.mark.parametrize("returned", [1, "text", [("units", 4)], {3: 4}, 0, False, ()])
def test_a_function_that_returns_no_constants_is_refused(returned):
    with pytest.raises(
        InvalidSettingsError, match=r"the function space returned .* return None or"
    ):
        suggest_of(asks(returned))(FixedTrial({"kind": "b", "units": 5}))


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
