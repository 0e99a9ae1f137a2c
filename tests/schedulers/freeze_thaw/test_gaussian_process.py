"""Gaussian process to which points are added one by one."""

import pickle

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from tune_tf.schedulers.gaussian_process import GaussianProcess

GROUPS = np.array([0, 1, 1, 1, 2])
"""Of two numbers and a choice of three options."""


def points(count, seed=0):
    rng = np.random.default_rng(seed)
    options = 0.7 * np.eye(3)[rng.integers(3, size=count)]
    return np.column_stack([rng.random(count), options, rng.random(count)])


def values_at(features, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.02, len(features))
    return np.sin(5 * features[:, 0]) + features[:, 1] - 2 * features[:, 2] + noise


def fitted(count=40):
    process = GaussianProcess(GROUPS)
    process.fit(points(count), values_at(points(count)), np.random.default_rng(0))
    return process


def sklearn_process(process, features, values):
    """Return scikit-learn's process with the same hyperparameters."""
    lengths, (signal, noise) = np.exp(process._theta[:-2]), np.exp(process._theta[-2:])
    kernel = ConstantKernel(signal) * Matern(lengths[process._groups], nu=2.5)
    nugget = noise + 1e-6 * signal
    return GaussianProcessRegressor(kernel, alpha=nugget, optimizer=None).fit(features, values)


def assert_same_predictions(one, other, **tolerance):
    unseen = points(30, seed=9)
    for own, expected in zip(one.predict(unseen), other.predict(unseen), strict=True):
        np.testing.assert_allclose(own, expected, **({"rtol": 1e-5, "atol": 1e-7} | tolerance))


@pytest.mark.parametrize("count", [1, 2, 40, 150])
def test_predictions_are_those_of_scikit_learn(count):
    process, unseen = fitted(count), points(30, seed=9)
    reference = sklearn_process(process, points(count), values_at(points(count)))
    expected, deviations = reference.predict(unseen, return_std=True)
    means, variances = process.predict(unseen)
    np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variances, deviations**2, rtol=1e-3, atol=1e-6)


def test_linear_features_have_the_kernel_of_bayesian_linear_regression():
    features, line = points(40), np.random.default_rng(1).normal(size=(40, 2))
    values = values_at(features) + line @ [2.0, -0.5] - 1
    process = GaussianProcess(GROUPS, 2)
    process.fit(np.concatenate([features, line], axis=1), values, np.random.default_rng(0))
    np.testing.assert_allclose(process.slopes, [2.0, -0.5], atol=0.05)
    lengths, (signal, noise) = np.exp(process._theta[:-2]), np.exp(process._theta[-2:])
    matern = ConstantKernel(signal) * Matern(lengths[GROUPS], nu=2.5)

    def covariance(rows, other, slopes):
        return matern(rows, other) + slopes @ line.T

    kernel = covariance(features, features, line) + (noise + 1e-6 * signal) * np.eye(40)
    unseen, beyond = points(20, seed=9), np.random.default_rng(2).normal(size=(20, 2))
    cross = covariance(unseen, features, beyond)
    means, variances = process.predict(np.concatenate([unseen, beyond], axis=1))
    np.testing.assert_allclose(means, cross @ np.linalg.solve(kernel, values), atol=1e-6)
    prior = signal + np.square(beyond).sum(axis=1)
    expected = prior - (cross * np.linalg.solve(kernel, cross.T).T).sum(axis=1)
    np.testing.assert_allclose(variances, expected, rtol=1e-3, atol=1e-7)
    kept = GaussianProcess(GROUPS, 2)
    kept.__setstate__(process.__getstate__())
    kept.fit(np.concatenate([features, line], axis=1)[:30], values[:30], np.random.default_rng(0))
    kept.append(np.concatenate([features, line], axis=1)[30:], values[30:])
    np.testing.assert_allclose(
        kept.predict(np.concatenate([unseen, beyond], axis=1))[0], means, atol=1e-6
    )


def test_the_loss_is_scikit_learns_likelihood_and_the_priors():
    process, features = GaussianProcess(GROUPS), points(30)
    values, squares = values_at(features), squares_by_parameter(features)
    found, expected = [], []
    for theta in np.random.default_rng(0).normal(-0.5, 0.7, size=(5, 5)):
        process._theta = theta
        reference = sklearn_process(process, features, values)
        off = (theta - np.log([0.7, 0.7, 0.7, 1.0, 0.02])) / [1, 1, 1, 1.5, 2]
        expected.append(0.5 * off @ off - reference.log_marginal_likelihood_value_)
        found.append(process._loss(theta, squares, 0.0, values)[0])
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)


def squares_by_parameter(features):
    squares = np.square(features[:, None] - features[None])
    return np.stack([squares[..., each == GROUPS].sum(-1) for each in range(3)], -1)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_the_loss(seed):
    process, features = GaussianProcess(GROUPS), points(20)
    linear = np.outer(features[:, 0], features[:, 0])
    arguments = squares_by_parameter(features), linear, values_at(features)
    theta = np.random.default_rng(seed).normal(-0.5, 0.8, size=5)
    error = check_grad(
        lambda at: process._loss(at, *arguments)[0],
        lambda at: process._loss(at, *arguments)[1],
        theta,
        epsilon=1e-6,
    )
    assert error < 1e-4 * np.linalg.norm(process._loss(theta, *arguments)[1])


def test_appended_points_are_as_good_as_fitted_ones():
    process, features = fitted(40), points(45, seed=4)
    expected = pickle.loads(pickle.dumps(process))
    values = values_at(features)
    expected.fit(features, values, np.random.default_rng(0))  # too few to find lengths anew
    process.fit(features[:30], values[:30], np.random.default_rng(0))
    for feature, value in zip(features[30:], values[30:], strict=True):
        process.append(feature[None], np.array([value]))
        process.predict(features[:2])
    assert process.size == 45
    assert_same_predictions(process, expected)


@pytest.mark.parametrize("num_appended", [1, 5, 100])
def test_removed_points_leave_no_trace(num_appended):
    process, features = fitted(20), points(num_appended, seed=4)
    before = process.predict(points(30, seed=9))
    for feature in features:
        process.append(feature[None], np.array([50.0]))
    assert np.abs(process.predict(features)[0]).max() > 10
    process.truncate(20)
    np.testing.assert_array_equal(process.predict(points(30, seed=9)), before)
    process.append(features[:1], np.ones(1))
    other = fitted(20)
    other.append(features[:1], np.ones(1))
    assert_same_predictions(process, other, rtol=0, atol=1e-12)


def test_a_pickled_process_has_its_hyperparameters_and_no_points():
    process = fitted(100)
    restored = pickle.loads(pickle.dumps(process))
    assert restored.size == 0
    assert restored.noise == process.noise
    assert len(pickle.dumps(process)) < 3000
    means, variances = restored.predict(points(3))
    np.testing.assert_array_equal(means, 0)
    np.testing.assert_allclose(variances, np.exp(process._theta[-2]))
    restored.fit(points(100), values_at(points(100)), np.random.default_rng(5))
    assert_same_predictions(restored, process)


def test_lengths_are_found_anew_once_a_third_was_added():
    process, thetas = GaussianProcess(GROUPS), []
    for count in (20, 26, 27, 36, 20):
        process.fit(points(count), values_at(points(count)), np.random.default_rng(0))
        thetas.append(process._theta.tolist())
    assert thetas[0] == thetas[1] != thetas[2] == thetas[3] == thetas[4]


DEGENERATE = {
    "identical points": (np.repeat(points(1), 30, axis=0), np.linspace(-1, 1, 30)),
    "identical points and values": (np.repeat(points(1), 30, axis=0), np.ones(30)),
    "constant values": (points(30), np.zeros(30)),
    "large values": (points(30), 1e6 * values_at(points(30))),
    "an outlier": (points(30), np.where(np.arange(30) == 3, 20.0, values_at(points(30)))),
    "one point": (points(1), np.array([3.0])),
}


@pytest.mark.parametrize(("features", "values"), DEGENERATE.values(), ids=DEGENERATE)
def test_any_points_have_finite_predictions(features, values):
    process = GaussianProcess(GROUPS)
    process.fit(features, values, np.random.default_rng(0))
    for value in values[:5]:
        process.append(features[:1], np.array([value]))
    for at in (features, points(30, seed=9)):
        means, variances = process.predict(at)
        assert np.isfinite(means).all()
        assert np.isfinite(variances).all()
        assert (variances > 0).all()
        assert np.abs(means).max() <= 2 * np.abs(values).max() + 1e-9
