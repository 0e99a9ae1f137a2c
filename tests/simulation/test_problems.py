"""The problems are what they say."""

import numpy as np
import pytest
from sampling import random_values

from tune_tf.errors import InvalidSettingsError
from tune_tf.simulation import PROBLEMS, make_problem
from tune_tf.space import flatten

every = pytest.mark.parametrize("name", PROBLEMS)


@every
def test_one_random_config_in_a_thousand_reaches_the_target(name):
    problem = make_problem(name)
    finals = problem.curve(random_values(problem.space, 200_000, np.random.default_rng(5)), 27)
    assert (finals <= problem.target).mean() == pytest.approx(0.001, rel=0.3)


@every
def test_the_value_at_full_fidelity_does_not_depend_on_how_long_that_is(name):
    config = make_problem(name).space.sample(np.random.default_rng(1))
    short, long = make_problem(name, max_t=9), make_problem(name, max_t=81)
    assert short.value(config, 9) == pytest.approx(long.value(config, 81))


@every
def test_a_config_by_itself_has_the_value_that_it_has_among_many(name):
    problem = make_problem(name)
    many = random_values(problem.space, 3, np.random.default_rng(2))
    values = problem.curve(many, 5)
    for index, value in enumerate(values):
        config = {path: column[index].item() for path, column in many.items()}
        assert problem.value(config, 5) == pytest.approx(float(value))


def test_a_third_of_the_problems_is_held_out():
    held_out = [name for name in PROBLEMS if make_problem(name).held_out]
    assert held_out == ["levy", "rosenbrock", "plateaus", "conditional"]


def test_a_faithful_problem_ranks_short_runs_as_long_ones():
    assert rank_correlation("mixed_faithful", 1) > 0.99


def test_a_misleading_problem_hides_its_best_configs_from_short_runs():
    early, late = early_and_late("misleading", 1)
    best = np.argsort(late)[:50]
    assert np.median([(early < early[each]).mean() for each in best]) > 0.15


def test_a_worsening_problem_rises_with_each_iteration():
    problem = make_problem("worsening")
    config = problem.space.sample(np.random.default_rng(3))
    curve = [problem.value(config, iteration) for iteration in (1, 3, 9, 27)]
    assert curve == sorted(curve)
    assert curve[-1] > 3 * curve[0]


def test_noise_hides_much_of_the_order_and_fades():
    assert 0.2 < rank_correlation("noisy", 1) < 0.7
    assert rank_correlation("noisy", 9) < rank_correlation("noisy", 25)


def test_three_parameters_of_twelve_matter_in_the_end():
    problem = make_problem("irrelevant")
    values = random_values(problem.space, 2_000, np.random.default_rng(6))
    finals = problem.curve(values, 27)
    matter = []
    for path in values:
        other = {**values, path: 1 - values[path]}
        if not np.allclose(problem.curve(other, 27), finals):
            matter.append(path)
    assert matter == ["x2", "x5", "x10"]


def test_runs_on_a_plateau_learn_nothing_until_their_onset():
    early, late = early_and_late("plateaus", 3)
    best = np.argsort(late)[:500]
    assert (early[best] - late[best] > 1.8).mean() > 0.3
    assert (early[best] - late[best] < 0.5).mean() > 0.03


def test_parameters_of_another_kind_of_model_do_not_matter():
    problem = make_problem("conditional")
    rng = np.random.default_rng(7)
    kinds = set()
    for _ in range(50):
        config = flatten(problem.space.sample(rng))
        others = {
            path: each.low for path, each in problem.space.parameters.items() if path not in config
        }
        kinds.add(config["kind"])
        assert problem.value({**config, **others}, 3) == problem.value(config, 3)
    assert len(kinds) == 3


def test_the_best_kind_of_model_starts_slowest():
    problem = make_problem("conditional")
    values = random_values(problem.space, 50_000, np.random.default_rng(8))
    is_network = values["kind"] == "network"
    early, late = (problem.curve(values, iteration) for iteration in (1, 27))
    assert set(values["kind"][np.argsort(late)[:50]]) == {"network"}
    assert np.median(early[is_network]) > np.median(early[~is_network])


def test_large_models_of_the_discrete_problem_start_worse():
    problem = make_problem("discrete")
    config = flatten(problem.space.sample(np.random.default_rng(9)))
    small, large = ({**config, "width": width} for width in (16, 1024))
    early, late = (
        problem.value(large, iteration) - problem.value(small, iteration) for iteration in (1, 27)
    )
    assert early > late + 0.3


def test_the_best_learning_rates_make_the_noisiest_curves():
    problem = make_problem("heteroscedastic")
    values = random_values(problem.space, 50_000, np.random.default_rng(10))
    late = problem.curve(values, 27)
    noise = problem.curve(values, 3) - late
    rate = np.log10(values["learning_rate"])
    assert np.std(noise[rate > -2]) > 3 * np.std(noise[rate < -4])
    assert np.median(rate[np.argsort(late)[:500]]) > -2.5


def test_a_deep_model_takes_longer():
    problem = make_problem("mixed_faithful")
    config = problem.space.sample(np.random.default_rng(3))
    shallow, deep = (problem.seconds({**flatten(config), "num_layers": n}) for n in (1, 6))
    assert deep > 2 * shallow


def test_an_unknown_problem_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidSettingsError, match=r"one of 'branin'.*did you mean 'hartmann6'"):
        make_problem("hartman6")


def test_a_limit_below_one_is_refused():
    with pytest.raises(InvalidSettingsError, match="max_t must be an integer of at least 1"):
        make_problem("branin", max_t=0)


def early_and_late(name, iteration):
    problem = make_problem(name)
    values = random_values(problem.space, 50_000, np.random.default_rng(4))
    return problem.curve(values, iteration), problem.curve(values, 27)


def rank_correlation(name, iteration):
    early, late = (np.argsort(np.argsort(each)) for each in early_and_late(name, iteration))
    return np.corrcoef(early, late)[0, 1]
