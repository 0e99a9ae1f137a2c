"""Whether a config is tried twice where a scheduler compares trials."""

import pytest
from optuna.samplers import TPESampler

from tune_tf.objective import Objective
from tune_tf.simulation import Problem
from tune_tf.space import Choice, Int, SearchSpace, flatten

OPTIONS = SearchSpace({"act": Choice(["relu", "tanh", None]), "units": Int(1, 8)})
PROBLEM = Problem(
    "options",
    "Made by hand.",
    OPTIONS,
    Objective("val_loss", "min"),
    9,
    lambda values, iteration: abs(values["units"] - 3) + 1 / iteration,
    0.0,
)


def num_distinct(sampler, scheduler="asha", **settings):
    """Return how many configs the 24 trials of a sweep have between them."""
    from tune_tf.simulation import make_pairing, simulate

    pairing = make_pairing(PROBLEM, sampler, scheduler, **settings)
    trace = simulate(PROBLEM, pairing.searcher, pairing.scheduler, num_workers=4, num_samples=24)
    return len({tuple(flatten(trial.config).items()) for trial in trace.trials})


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_each_config_of_a_finite_space_is_tried_before_any_repeat(sampler):
    assert num_distinct(sampler, seed=0) == 24


def test_without_rungs_configs_are_tried_again():
    assert num_distinct("tpe", "fifo", seed=0) < 24


def test_a_sampler_of_the_users_own_may_repeat_itself():
    assert num_distinct(TPESampler(seed=0, multivariate=False)) < 24
