"""Scale on which the losses of all rungs are modelled."""

import numpy as np
import pytest
from rung_losses import BELOW, curves, fitted, partly, usual


@pytest.mark.parametrize(
    ("offset", "factor", "shift"),
    [(-BELOW, 8.0, 0.0), (-BELOW, 1e-3, 0.0), (0.0, 2.5, -40.0), (0.0, 1e3, 0.0)],
    ids=["positive", "positive and small", "negative", "negative and large"],
)
def test_the_unit_of_losses_does_not_matter(offset, factor, shift):
    _, features, losses = usual()
    losses = losses + offset
    model, other = fitted(features, losses), fitted(features, factor * losses + shift)
    for rung in range(3):
        np.testing.assert_allclose(
            other.scaled(factor * losses[:, rung] + shift, rung),
            model.scaled(losses[:, rung], rung),
            atol=1e-9,
        )
    found = other.predict(features, factor * losses + shift)
    for own, expected in zip(found, model.predict(features, losses), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-3)


def test_scaled_losses_rise_with_losses_and_large_ones_count_less():
    model, _, _ = usual()
    losses = BELOW + np.array([-5.0, 0.5, 1.0, 2.0, 50.0, 1e6, np.nan])
    scaled = model.scaled(losses, 1)
    assert (np.diff(scaled[:-1]) > 0).all()
    assert scaled[-2] < 20
    assert np.isnan(scaled[-1])


def test_accuracies_are_told_apart_by_the_ratios_of_their_errors():
    features, losses = curves(30, 1, noise=0, offset=0)
    model = fitted(features, -1 / (1 + losses))
    at = model.scaled(-1 + np.array([0.01, 0.02, 0.04]) - 1e-3, 0)
    assert at[1] - at[0] == pytest.approx(at[2] - at[1])


def test_scales_stay_as_they_are_once_a_dozen_has_passed_a_rung():
    features, losses = curves(30)
    model = fitted(features[:12], partly(losses[:12], (12, 5, 0)))
    before = [model.scaled(BELOW + np.array([1.0, 2.0]), rung) for rung in range(3)]
    model.fit(features, partly(losses, (30, 20, 3)), np.random.default_rng(0))
    after = [model.scaled(BELOW + np.array([1.0, 2.0]), rung) for rung in range(3)]
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).min() > 1e-6


def test_constant_losses_have_finite_predictions():
    features, _ = curves(8)
    model = fitted(features, partly(np.full((8, 3), 0.7), (8, 4, 2)))
    means, variances = model.predict(features, np.full((8, 3), np.nan))
    np.testing.assert_allclose(means, 0, atol=1e-6)
    assert float(model.scaled(np.array(0.7), 2)) == 0
    assert np.isfinite(variances).all()


def test_a_dozen_equal_losses_do_not_set_the_scale_for_good():
    features, losses = curves(40, 2)
    losses[:12] = 5.0
    model = fitted(features[:12], losses[:12])
    model.fit(features, losses, np.random.default_rng(0))
    assert np.abs(model.scaled(losses[:, 0], 0)).max() < 100
