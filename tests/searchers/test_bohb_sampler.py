import pickle
import warnings

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from tune_tf.searchers.bohb_sampler import BohbSampler
from tune_tf.searchers.bohb_space import BohbSpace
from tune_tf.searchers.shown import Shown
from tune_tf.searchers.suggestions import suggest_of
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

ConfigSpace = pytest.importorskip("ConfigSpace")
pytest.importorskip("hpbandster")

pytestmark = pytest.mark.bohb

SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "optimizer": Choice(["adam", "sgd", None, [1, 2]]),
        "momentum": Float(0, 0.9, when={"optimizer": "sgd"}),
        "nesterov": Choice([True, False], when={"momentum": [0, 0.9], "optimizer": "sgd"}),
        "kind": Constant("a", when={"optimizer": ["adam", "sgd"]}),
        "depth": Int(1, 3, when={"kind": "a", "optimizer": "adam"}),
        "units": {"n": Int(4, 64, step=4), "m": Int(1, 100, log=True)},
        "drop": Float(0.1, 0.9, step=0.1),
        "one": Int(3, 3),
    }
)
SMALL = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "drop": Float(0.1, 0.9, step=0.1)})
DISTRIBUTIONS = {
    "rate": FloatDistribution(0, 1),
    "n": IntDistribution(1, 9),
    "act": CategoricalDistribution(["relu", None]),
}


def loss(config):
    return abs(np.log10(config["rate"]) + 2.5) + config["drop"]


def searched(seed, num_trials=20, space=SMALL, mode="minimize"):
    """Return the study and the configs of a sweep, each second trial of it stopped."""
    storage = Shown(InMemoryStorage(), lambda: (1, 3))
    study = optuna.create_study(storage=storage, sampler=BohbSampler(space, seed), direction=mode)
    return study, [step(study, space) for _ in range(num_trials)]


def step(study, space=SMALL):
    """Ask for a trial and end it."""
    trial = study.ask()
    config = suggest_of(space)(trial)
    sign = 1 if study.direction.name == "MINIMIZE" else -1
    trial.report(sign * (loss(config) + 1), 1)
    if trial.number % 2:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        trial.report(sign * loss(config), 3)
        study.tell(trial, sign * loss(config))
    return config


def test_it_proposes_plain_values_of_the_space_and_draws_them_from_its_model():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study, configs = searched(1, num_trials=30, space=SPACE)
    for config in configs:
        assert SPACE.validate(config) == []
        assert {type(value) for value in config.values()} <= {
            int,
            float,
            str,
            list,
            bool,
            type(None),
        }
    assert study.sampler._model[1].bohber.kde_models


@pytest.mark.parametrize("mode", ["minimize", "maximize"])
def test_it_finds_better_configs_than_random_ones(mode):
    _, configs = searched(3, num_trials=50, mode=mode)
    losses = [loss(config) for config in configs]
    assert np.median(losses[-20:]) < np.median(losses[:15])


def test_the_seed_settles_what_is_proposed():
    assert searched(1)[1] == searched(1)[1] != searched(2)[1]


def test_numpys_own_generator_is_left_as_it_is():
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.RandomState(5).rand()
    searched(1, num_trials=12)
    assert np.random.rand() == expected  # noqa: NPY002


def test_it_goes_on_from_the_study_after_it_was_pickled():
    study, _ = searched(1)
    known = study.sampler._fed
    study.sampler = pickle.loads(pickle.dumps(study.sampler))
    step(study)
    assert known < study.sampler._fed


def test_running_trials_are_learned_from_at_their_rungs():
    storage = Shown(InMemoryStorage(), lambda: (1, 3))
    study = optuna.create_study(storage=storage, sampler=BohbSampler(DISTRIBUTIONS, 1))
    trial = study.ask(DISTRIBUTIONS)
    for step_ in (1, 2, 3):
        trial.report(0.5, step_)
    study.ask(DISTRIBUTIONS)
    assert study.sampler._fed == {(0, 1), (0, 3)}


def test_trials_without_a_curve_or_of_another_space_are_no_obstacle():
    study = optuna.create_study(sampler=BohbSampler(DISTRIBUTIONS, 1))
    rate = {"rate": FloatDistribution(0, 5)}
    full = {"rate": 0.5, "n": 3, "act": None}
    study.add_trial(create_trial(value=1.0, params=full, distributions=DISTRIBUTIONS))
    study.add_trial(create_trial(value=1.0, params={"rate": 0.5}, distributions=rate))
    too_large = {**full, "rate": 4.0}
    study.add_trial(
        create_trial(value=1.0, params=too_large, distributions={**DISTRIBUTIONS, **rate})
    )
    study.add_trial(create_trial(state=TrialState.FAIL))
    study.ask(DISTRIBUTIONS)
    model = study.sampler._model[1].bohber
    assert {budget: len(configs) for budget, configs in model.configs.items()} == {1.0: 1}


def test_a_parameter_that_the_space_does_not_have_is_drawn_at_random():
    study = optuna.create_study(sampler=BohbSampler(DISTRIBUTIONS, 1))
    assert 0 <= study.ask().suggest_float("other", 0, 1) <= 1


def test_a_space_without_anything_to_search_is_no_obstacle():
    study = optuna.create_study(sampler=BohbSampler(SearchSpace({"a": 1, "b": Int(3, 3)}), 1))
    assert suggest_of(SearchSpace({"a": 1, "b": Int(3, 3)}))(study.ask()) == {"a": 1, "b": 3}


parameters = st.one_of(
    st.tuples(st.floats(-10, 10), st.floats(0.5, 10)).map(lambda it: Float(it[0], it[0] + it[1])),
    st.floats(0.001, 1).map(lambda low: Float(low, low * 100, log=True)),
    st.integers(1, 9).map(lambda num: Float(0.1, 0.1 + num * 0.1, step=0.1)),
    st.integers(1, 20).map(lambda low: Int(low, low + 20, log=True)),
    st.integers(1, 20).map(lambda num: Int(-4, -4 + 3 * num, step=3)),
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(Choice),
)


def with_condition(parameter, when):
    return type(parameter)(**{**vars(parameter), "when": when})


@given(parameters, parameters, st.lists(st.sampled_from("xyz"), min_size=1, unique=True))
@settings(max_examples=30, deadline=None)
def test_whatever_bohb_samples_is_a_config_of_the_space_and_leads_back(first, second, allowed):
    space = SearchSpace(
        {
            "top": Choice(["x", "y", "z"]),
            "a": with_condition(first, {"top": allowed}),
            "below": Choice([1, 2], when={"top": "x"}),
            "g": {"b": with_condition(second, {"below": 2})},
        }
    )
    bohb = BohbSpace(space)
    made = bohb.to_config_space()
    made.seed(1)
    for configuration in made.sample_configuration(8):
        params = bohb.decoded(dict(configuration))
        config = suggest_of(space)(optuna.trial.FixedTrial({**single(space), **params}))
        assert space.validate(config) == []
        again = ConfigSpace.Configuration(made, bohb.encoded({**single(space), **params}))
        assert dict(again) == pytest.approx(dict(configuration))


def single(space):
    """Return the parameters that have one value only, which nobody samples."""
    return {
        path: getattr(each, "low", None) or getattr(each, "choices", [None])[0]
        for path, each in space.distributions().items()
        if each.single()
    }


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [("rate", 1e-4, 1e-1), ("units/n", 4, 64), ("units/m", 1, 100), ("drop", 0.1, 0.9)],
)
def test_both_ends_of_a_range_lead_there_and_back(path, low, high):
    others = {"rate": 0.01, "optimizer": None, "units/n": 8, "units/m": 5, "drop": 0.3, "one": 3}
    space = BohbSpace(SPACE)
    for end in (low, high):
        params = {**others, path: end}
        configuration = ConfigSpace.Configuration(space.to_config_space(), space.encoded(params))
        assert space.decoded(dict(configuration))[path] == pytest.approx(end, rel=1e-9)
