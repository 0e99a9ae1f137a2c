"""Prediction of last losses from configs and losses at rungs."""

import copy

import numpy as np
import pytest
from rung_losses import BELOW, begun, curves, fitted, partly, usual


def test_passed_rungs_have_no_variance_and_the_others_have_some():
    model, features, losses = usual()
    _, variances = model.predict(features, losses)
    np.testing.assert_array_equal(variances > 0, np.isnan(losses))


def test_every_row_is_predicted_as_alone():
    model, features, losses = usual()
    losses[-1] = np.nan
    means, variances = model.predict(features, losses)
    for row in (0, 10, 20, 29):
        alone = model.predict(features[[row]], losses[[row]])
        np.testing.assert_allclose(alone[0], means[[row]], rtol=1e-9)
        np.testing.assert_allclose(alone[1], variances[[row]], rtol=1e-9)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_ends_are_predicted_from_what_is_known(known):
    shares = []
    for seed in range(6):
        tried, others = curves(30, seed=seed)
        features, losses = curves(200, seed=100 + seed)
        model = fitted(tried, partly(others, (30, 20, 12)))
        means, variances = model.predict(features, begun(losses, known))
        error = means - model.scaled(losses[:, -1], 2)
        assert np.corrcoef(means, losses[:, -1])[0, 1] > 0.95
        assert np.abs(np.mean(error)) < 0.2
        shares.append(np.mean(np.abs(error) < 2 * np.sqrt(variances.sum(1))))
    assert 0.85 < np.mean(shares) < 0.99


PASSED = {
    "one rung": (30,),
    "one trial": (1, 0, 0),
    "one trial at its end": (1, 1, 1),
    "two trials": (2, 1, 0),
    "two ends": (2, 2, 2),
    "nothing beyond the first rung": (30, 0, 0),
    "one beyond": (30, 1, 0),
    "one at each": (30, 1, 1),
    "all": (30, 30, 30),
}


@pytest.mark.parametrize("passed", PASSED.values(), ids=PASSED)
def test_any_number_of_losses_at_rungs_has_finite_predictions(passed):
    features, losses = curves(max(passed), len(passed))
    model = fitted(features, partly(losses, passed))
    unseen, others = curves(20, len(passed), seed=3)
    for known in range(len(passed) + 1):
        means, variances = model.predict(unseen, begun(others, known))
        assert np.isfinite(means).all()
        assert (variances[:, known:] > 0).all()
        assert (variances[:, :known] == 0).all()
        assert np.isfinite(variances).all()


def test_an_appended_loss_counts_about_as_a_fitted_one():
    features, losses = curves(31)
    passed = np.array((30, 20, 14))
    model = fitted(features, partly(losses, passed))
    refitted = copy.deepcopy(model)
    refitted.fit(features, partly(losses, passed + 1), np.random.default_rng(0))
    for rung, row in enumerate(passed):
        model.append(features[row], partly(losses, passed + 1)[row], rung)
    assert model.sizes == refitted.sizes == [31, 21, 15]
    unseen, unknown = curves(40, seed=7)[0], np.full((40, 3), np.nan)
    own, expected = model.predict(unseen, unknown), refitted.predict(unseen, unknown)
    np.testing.assert_allclose(own[0], expected[0], atol=0.15)
    np.testing.assert_allclose(own[1], expected[1], atol=0.05)


@pytest.mark.parametrize("rung", [0, 1, 2])
def test_what_is_expected_changes_no_mean_and_leaves_less_variance(rung):
    model, features, losses = usual()
    at = [np.array([[0.97, 0.03]]), features[[29]], features[[14]]][rung]
    so_far = [np.full((1, 3), np.nan), losses[[29]], losses[[14]]][rung]
    means, variances = model.predict(at, so_far)
    model.append_expected(at, so_far)
    new_means, new_variances = model.predict(at, so_far)
    np.testing.assert_allclose(new_means, means, atol=1e-6)
    assert new_variances[0, rung] < variances[0, rung]


def test_what_is_expected_of_several_trials_is_added_as_of_one_after_another():
    model, features, losses = usual()
    (other, _, _), rows = usual(), [29, 3, 14, 20, 10]
    so_far = losses[rows]
    so_far[1] = np.nan
    model.append_expected(features[rows], so_far)
    for each, loss in zip(features[rows], so_far, strict=True):
        other.append_expected(each[None], loss[None])
    assert model.sizes == other.sizes == [31, 17, 10]
    unseen, unknown = curves(40, seed=7)[0], np.full((40, 3), np.nan)
    found = model.predict(unseen, unknown)
    for own, expected in zip(found, other.predict(unseen, unknown), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-9)
    model.append_expected(features[:0], losses[:0])
    assert model.sizes == other.sizes


@pytest.mark.parametrize("lasts", [True, False], ids=["lasts", "does not last"])
def test_noise_of_a_short_run_counts_as_far_as_it_lasts(lasts):
    features, smooth = curves(60, 2, noise=0.0)
    noise = np.random.default_rng(1).normal(0, 0.7, 60)
    losses = smooth + np.stack([noise, noise if lasts else np.zeros(60)], axis=1)
    passed = partly(losses, (60, 30))
    model = fitted(features, passed)
    means, _ = model.predict(features[30:], passed[30:])
    error = means - model.scaled(losses[30:, 1], 1)
    assert np.sqrt(np.mean(error**2)) < 0.25 * np.std(model.scaled(noise + losses.mean(), 1))


def test_good_ends_of_bad_starts_are_found_by_few_full_runs():
    rng = np.random.default_rng(0)
    features, first = rng.random((40, 2)), rng.uniform(0, 1, 40)
    losses = BELOW + np.stack([first, 3 - first], 1)
    model = fitted(features, partly(losses, (40, 8)))
    means, _ = model.predict(features[8:], partly(losses[8:], (32, 0)))
    assert np.corrcoef(means, first[8:])[0, 1] < -0.9


def test_a_fit_to_fewer_losses_forgets_the_lines_of_the_one_before():
    model, features, losses = usual((30, 8, 4))
    fewer = partly(losses, (30, 1, 0))
    model.fit(features, fewer, np.random.default_rng(0))
    means, _ = model.predict(features[1:], fewer[1:])
    np.testing.assert_allclose(means, model.scaled(losses[1:, 0], 0))
