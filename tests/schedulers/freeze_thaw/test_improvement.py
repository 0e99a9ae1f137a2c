"""Expected improvement and the price of an epoch."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from tune_tf.schedulers.improvement import (
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


def test_chance_to_beat_is_the_share_of_draws_below():
    draws = 1.0 + 2.0 * np.random.default_rng(0).standard_t(3, 100_000)
    (chance,) = chance_to_beat(np.array([1.0]), np.array([4.0]), 0.3)
    assert chance == pytest.approx((draws < 0.3).mean(), abs=0.01)


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
