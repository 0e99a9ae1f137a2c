"""Expected improvement and the price of an epoch."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from tune_tf.schedulers.improvement import (
    _transition,
    chance_to_beat,
    expected_improvement,
    improvement_price,
)


def price(mean, deviations, costs, best=0.0, last=-1):
    """Return the price of one trial; deviations are those of all rungs."""
    costs, variances = np.array(costs, float), np.square(deviations)[None]
    return improvement_price(np.array([mean]), variances, np.array([last]), best, costs)[0]


def price_by_numerical_integration(mean, deviations, costs):
    """Return the root of a trial's worth, by dynamic programming over a fine grid."""
    total = np.sqrt(np.square(deviations).sum())
    grid = mean + np.linspace(-9, 9, 1201) * total
    steps = np.linspace(-8, 8, 801)
    weights = norm.pdf(steps) / norm.pdf(steps).sum()

    def worth(an_epoch):
        distance = -grid / deviations[-1]
        improvement = deviations[-1] * (distance * norm.cdf(distance) + norm.pdf(distance))
        values = improvement - an_epoch * costs[-1]
        for deviation, cost in zip(deviations[-2::-1], costs[-2::-1], strict=True):
            ahead = grid[:, None] + deviation * steps
            values = np.interp(ahead, grid, np.maximum(values, 0)) @ weights - an_epoch * cost
        return values[len(grid) // 2]

    now = expected_improvement(np.array([mean]), np.array([total**2]), 0.0)[0]
    return brentq(worth, now / sum(costs) / 2, now / costs[0], rtol=1e-4)


@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (2, 0.5), (-3, 2), (0.1, 0.02)])
def test_expected_improvement_is_the_integral_of_the_improvement(mean, deviation):
    def integrand(value):
        return (1 - value) * norm.pdf(value, mean, deviation)

    expected, _ = quad(integrand, mean - 12 * deviation, 1, points=[min(mean, 0.99)])
    found = expected_improvement(np.array([mean]), np.array([deviation**2]), 1.0)
    assert found[0] == pytest.approx(expected, rel=1e-6)


def test_expected_improvement_is_never_negative_and_falls_with_the_mean():
    means = np.linspace(-60, 60, 2001)
    found = expected_improvement(means, np.ones(2001), 0.0)
    assert found.min() >= 0
    assert (np.diff(found) <= 1e-300).all()


def test_of_known_values_the_improvement_is_exact():
    found = expected_improvement(np.array([0.2, 0.9]), np.zeros(2), 0.5)
    np.testing.assert_allclose(found, [0.3, 0.0], atol=1e-5)
    chances = chance_to_beat(np.array([0.2, 0.9]), np.zeros(2), 0.5)
    np.testing.assert_allclose(chances, [1, 0], atol=1e-12)


def test_chance_to_beat_is_the_share_of_draws_below():
    draws = 1.0 + 2.0 * np.random.default_rng(0).standard_t(3, 100_000)
    (chance,) = chance_to_beat(np.array([1.0]), np.array([4.0]), 0.3)
    assert chance == pytest.approx((draws < 0.3).mean(), abs=0.01)


@pytest.mark.parametrize("last", [-1, 0, 1])
def test_with_one_rung_ahead_the_price_is_the_improvement_an_epoch(last):
    deviations, costs = [0.0] * (last + 1) + [0.5], [1.0, 3.0, 9.0][: last + 2]
    improvement = expected_improvement(np.array([0.2]), np.array([0.25]), 0.0)[0]
    assert price(0.2, deviations, costs, last=last) == pytest.approx(improvement / costs[-1])


CASES = {
    "early knowledge": ((1.0, 0.5), (1, 3)),
    "late knowledge": ((0.3, 1.0), (1, 3)),
    "long last": ((0.2, 0.1), (1, 9)),
    "short last": ((0.2, 0.2), (4, 2)),
    "three, early": ((1.0, 0.3, 0.1), (1, 2, 6)),
    "three, even": ((0.3, 0.3, 0.3), (1, 2, 6)),
    "three, late": ((0.1, 0.1, 0.6), (1, 2, 6)),
    "four": ((0.4, 0.3, 0.2, 0.1), (1, 2, 6, 18)),
}


@pytest.mark.parametrize(("deviations", "costs"), CASES.values(), ids=CASES)
@pytest.mark.parametrize(("gap", "error"), [(-3, 0.01), (-0.5, 0.03), (1, 0.06), (2.5, 0.25)])
def test_prices_are_those_of_dynamic_programming_over_a_fine_grid(deviations, costs, gap, error):
    mean = gap * np.sqrt(np.square(deviations).sum())
    expected = price_by_numerical_integration(mean, deviations, costs)
    assert price(mean, deviations, costs) == pytest.approx(expected, rel=error)


def test_rungs_that_are_passed_do_not_count():
    ahead = price(0.4, (0.5, 0.3), (2, 6))
    assert price(0.4, (0, 0.5, 0.3), (1, 2, 6), last=0) == pytest.approx(ahead)
    assert price(0.4, (0, 0, 0.5, 0.3), (9, 1, 2, 6), last=1) == pytest.approx(ahead)


@pytest.mark.parametrize("deviation", [1e-5, 0.1, 0.4, 1.0])
def test_a_step_between_grid_points_leaves_none_out_and_keeps_the_mean(deviation):
    (weights,) = _transition(np.array([deviation]))
    grid = np.linspace(-3.5, 3.5, len(weights))
    assert weights.min() >= -1e-12
    np.testing.assert_allclose(weights.sum(1), 1)
    assert weights[len(grid) // 2] @ grid == pytest.approx(0, abs=2e-3)
    assert weights[-1] @ grid > 2  # half of it would be above the grid


@pytest.mark.parametrize("gap", [-2, 0, 2])
def test_without_knowledge_on_the_way_the_price_is_that_of_the_whole_way(gap):
    improvement = expected_improvement(np.array([gap]), np.ones(1), 0.0)[0]
    assert price(gap, (0, 0, 1), (1, 3, 9)) == pytest.approx(improvement / 13, rel=0.08)


@pytest.mark.parametrize(
    ("gap", "costs"),
    [
        (-3, (1, 3, 9)),
        (0, (1, 3, 9)),
        (3, (1, 3, 9)),
        (5, (1, 3, 9)),
        (-1, (1, 2, 397)),
        (5, (1, 2, 997)),
    ],
)
@pytest.mark.parametrize("deviations", [(0.99, 0.1, 0.1), (0.1, 0.99, 0.1)])
def test_the_whole_way_is_worth_its_improvement_an_epoch_at_least(gap, costs, deviations):
    total = np.square(deviations).sum()
    improvement = expected_improvement(np.array([gap]), np.array([total]), 0.0)[0]
    found = price(gap, deviations, costs)
    assert 0.99 * improvement / sum(costs) <= found <= 1.01 * improvement / costs[0]


def test_a_long_last_rung_costs_what_it_costs():
    improvement = expected_improvement(np.zeros(1), np.ones(1), 0.0)[0]
    assert price(0.0, (0, 1), (1, 1000)) == pytest.approx(improvement / 1001, rel=0.02)


def test_knowledge_that_comes_early_is_worth_more():
    prices = [price(0.5, (early, np.sqrt(1 - early**2)), (1, 9)) for early in (0.1, 0.5, 0.9)]
    assert prices == sorted(prices)
    assert prices[-1] > 1.5 * prices[0]


@pytest.mark.parametrize("costs", [(2.0,), (1.0, 5.0), (1.0, 2.0, 6.0)])
def test_prices_fall_with_the_mean_and_the_costs_and_rise_with_the_variance(costs):
    deviations = np.full(len(costs), 0.5)
    by_mean = [price(mean, deviations, costs) for mean in np.linspace(-3, 5, 17)]
    by_deviation = [price(0.5, scale * deviations, costs) for scale in (0.5, 0.8, 1.2, 2, 5)]
    assert (np.diff(by_mean) < 0).all()
    assert (np.diff(by_deviation) > 0).all()
    for each in range(len(costs)):
        dearer = np.array(costs) + np.eye(len(costs))[each]
        assert price(0.5, deviations, dearer) < price(0.5, deviations, costs)


@pytest.mark.parametrize("factor", [1e-3, 0.1, 40.0])
@pytest.mark.parametrize("costs", [(2.0,), (1.0, 5.0), (1.0, 2.0, 6.0)])
def test_prices_have_the_unit_of_the_values_an_epoch(costs, factor):
    deviations = np.array([0.5, 0.4, 0.3])[: len(costs)]
    found = price(0.3, deviations, costs)
    scaled = price(2 + factor * 0.3, factor * deviations, costs, best=2.0)
    assert scaled == pytest.approx(factor * found, rel=2e-3)
    assert price(0.3, deviations, factor * np.array(costs)) == pytest.approx(
        found / factor, rel=2e-3
    )


def test_trials_at_different_rungs_are_priced_as_each_alone():
    rng = np.random.default_rng(0)
    last = np.array([1, -1, 2, 0, 0, 3, -1, 2])
    means, costs = rng.normal(size=8), np.array([1.0, 2.0, 6.0, 18.0])
    variances = rng.random((8, 4)) * (np.arange(4) > last[:, None])
    together = improvement_price(means, variances, last, -0.5, costs)
    alone = [
        improvement_price(means[[row]], variances[[row]], last[[row]], -0.5, costs)[0]
        for row in range(8)
    ]
    np.testing.assert_allclose(together, alone)
    assert together[5] == 0  # it is at its end
    assert (together[last < 3] > 0).all()


@pytest.mark.parametrize("mean", [-1.0, 0.0, 1.0, 1e6])
def test_prices_of_known_ends_are_finite(mean):
    found = price(mean, (0.0, 0.0, 0.0), (1, 2, 6))
    assert np.isfinite(found)
    assert found >= 0
    assert found == pytest.approx(max(-mean, 0) / 9, abs=1e-4)


def test_no_trials_have_no_prices():
    nothing = np.zeros(0)
    assert not improvement_price(nothing, np.zeros((0, 2)), nothing, 0.0, np.ones(2)).size
