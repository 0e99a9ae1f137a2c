"""Costs of epochs, by which logical time advances."""

import pytest

from tune_tf import Objective
from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.schedulers.logical_sweep import EpochCosts, LogicalSweep, Position
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, Float, SearchSpace

SPACE = SearchSpace({"size": Float(1, 64, log=True), "kind": Choice(["fast", "slow"])})


def cost_of(size, kind):
    return 0.01 * size * (5 if kind == "slow" else 1)


def test_the_first_cost_is_a_guess():
    assert EpochCosts(SPACE).predict({"size": 8.0, "kind": "fast"}) == 1.0


def test_a_new_config_costs_what_like_ones_did():
    costs = EpochCosts(SPACE)
    for size in (1.0, 2.0, 4.0, 16.0, 64.0):
        for kind in ("fast", "slow"):
            costs.add({"size": size, "kind": kind}, cost_of(size, kind))
    for size, kind in ((8.0, "slow"), (32.0, "fast"), (3.0, "slow")):
        predicted = costs.predict({"size": size, "kind": kind})
        assert predicted == pytest.approx(cost_of(size, kind), rel=0.25)


def test_a_prediction_has_two_digits_and_stays_among_known_costs():
    costs = EpochCosts(SPACE)
    costs.add({"size": 2.0, "kind": "fast"}, 0.0213)
    costs.add({"size": 4.0, "kind": "fast"}, 0.0421)
    predicted = costs.predict({"size": 64.0, "kind": "slow"})
    assert predicted == float(f"{predicted:.2g}")
    assert 0.021 <= predicted <= 0.043


def test_a_space_of_constants_has_the_mean_cost():
    costs = EpochCosts(SearchSpace({"size": 3}))
    costs.add({"size": 3}, 0.5)
    assert costs.predict({"size": 3}) == 0.5


def test_a_trial_with_cheap_epochs_gets_further_in_the_same_logical_time():
    objective = Objective("accuracy", "max")
    space = SearchSpace({"size": Choice([1, 9])})
    sweep = LogicalSweep(
        OptunaSearcher(space, objective, "grid"),
        make_scheduler("fifo", objective, max_t=20),
        num_slots=2,
        num_samples=2,
        space=space,
    )
    sweep.advance()
    sizes = [sweep.config(number)["size"] for number in range(2)]
    for iteration in range(1, 21):
        for number, size in enumerate(sizes):
            metrics = {"accuracy": 0.5, "perf/epoch_cost": 0.1 * size}
            sweep.report(Position(number, 0, iteration), metrics)
            sweep.advance()
        if iteration == 3:
            reached = {size: sweep.reached(number, 0) for number, size in enumerate(sizes)}
    assert reached[1] == 3
    assert reached[9] == 1  # its second epoch ends when the other one has trained nine more
