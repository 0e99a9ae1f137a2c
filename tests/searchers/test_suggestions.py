import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.suggestions import has_categoricals, suggest_of
from tune_tf.space import Choice, Float, SearchSpace

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


def test_a_callable_is_used_as_it_is():
    assert suggest_of(define) is define


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
    with pytest.raises(InvalidSettingsError, match=r"(?s)2 faults.*a: must.*b: must"):
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
def test_categoricals_are_found(space, has):
    assert has_categoricals(space) is has
