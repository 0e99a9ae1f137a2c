"""Gaussian process to which points are added."""

import math
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Final

import numpy as np
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from threadpoolctl import ThreadpoolController

FloatArray = np.ndarray[Any, np.dtype[Any]]

_MAX_FIT_POINTS: Final = 120
_MAX_STEPS: Final = 15
_JITTER: Final = 1e-6
_BLOCK: Final = 128
_LEAST_VARIANCE: Final = 1e-8
_LENGTH, _SIGNAL, _NOISE = 0.7, 1.0, 0.02
_PRIOR_SD = {"length": 1.0, "signal": 1.5, "noise": 2.0}


class GaussianProcess:
    """Regression by a Gaussian process with a Matern kernel of 5/2 and one length a parameter.

    The logarithms of lengths, signal and noise have normal priors and are found by maximum a
    posteriori (Rasmussen and Williams, Gaussian Processes for Machine Learning, 5.4.1). The inverse
    of the Cholesky factor is kept: a point more is a row more, in O(n^2).

    The values may be linear in further features, whose slopes have independent standard normal
    priors (the same book, 2.7): their kernel is the product, and is added.

    Args:
        groups: The number of the parameter that each feature belongs to, from 0.
        num_linear: Number of linear features; they follow the others.
    """

    def __init__(self, groups: FloatArray, num_linear: int = 0) -> None:
        num_lengths = int(groups.max()) + 1 if len(groups) else 0
        sds = [_PRIOR_SD["length"]] * num_lengths + [_PRIOR_SD["signal"], _PRIOR_SD["noise"]]
        self._groups = groups.astype(int)
        self._num_linear = num_linear
        self._num_lengths = num_lengths
        self._mode = np.log([_LENGTH] * num_lengths + [_SIGNAL, _NOISE])
        self._precision = 1 / np.square(sds)
        self._bounds = [(math.log(0.05), math.log(20))] * num_lengths + [
            (-8, 4),
            (math.log(1e-5), math.log(2)),
        ]
        self._theta = self._mode
        self._solution: FloatArray | None = None
        self._num_optimized = 0
        self._clear(0)

    def fit(self, features: FloatArray, values: FloatArray, rng: np.random.Generator) -> None:
        """Replace all points, [n, features] and [n]; fit lengths anew if a third was added."""
        count = len(values)
        if count >= 1.35 * self._num_optimized:
            self._num_optimized = count
            self._optimize(features, values, rng)
        self._clear(count)
        self.size = count
        self._points[:count], self._values[:count] = features / self._scales, values
        kernel = self._kernel(self._points[:count], self._points[:count])
        kernel[np.diag_indices(count)] += self.noise + _JITTER * self._signal
        self._inverse[:count, :count] = _inverse_factor(kernel)

    def append(self, features: FloatArray, values: FloatArray) -> None:
        """Add points, [n, features] and [n]."""
        begin, end = self.size, self.size + len(values)
        if end > len(self._values):
            self._grow(2 * end)
        points = features / self._scales
        inverse = self._inverse[:begin, :begin]
        cross = inverse @ self._kernel(self._points[:begin], points)
        rest = self._kernel(points, points) - cross.T @ cross
        rest[np.diag_indices(len(values))] += self.noise + _JITTER * self._signal
        try:
            corner = _inverse_factor(rest)
        except np.linalg.LinAlgError:  # nothing but rounding errors is left
            corner = np.diag(1 / np.sqrt(np.maximum(np.diag(rest), _LEAST_VARIANCE)))
        self._inverse[begin:end, :begin] = -corner @ (cross.T @ inverse)
        self._inverse[begin:end, begin:end] = corner
        self._points[begin:end], self._values[begin:end] = points, values
        self.size, self._solution = end, None

    def truncate(self, size: int) -> None:
        """Remove the points that were appended after the first ``size``."""
        if size != self.size:
            self.size, self._solution = size, None

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and variances without noise, [n] each, at features [n, features]."""
        points, inverse = features / self._scales, self._inverse[: self.size, : self.size]
        kernel = self._kernel(points, self._points[: self.size])
        explained = np.zeros(len(kernel))
        for end in range(_BLOCK, self.size + _BLOCK, _BLOCK):  # a triangle is half of its square
            rows = inverse[end - _BLOCK : end, :end]
            explained += np.square(kernel[:, :end] @ rows.T).sum(axis=1)
        prior = self._signal + np.square(points[:, len(self._groups) :]).sum(axis=1)
        return kernel @ self._weights(), np.maximum(prior - explained, _LEAST_VARIANCE)

    def means(self, features: FloatArray) -> FloatArray:
        """Return the means alone, which takes O(n) a row in place of O(n^2)."""
        kernel = self._kernel(features / self._scales, self._points[: self.size])
        means: FloatArray = kernel @ self._weights()
        return means

    @property
    def slopes(self) -> FloatArray:
        """Means of the slopes of the linear features."""
        slopes: FloatArray = self._weights() @ self._points[: self.size, len(self._groups) :]
        return slopes

    def __getstate__(self) -> dict[str, Any]:
        """Return what cannot be computed from the points."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_points", "_values", "_inverse", "_solution", "size")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a process that has no points yet."""
        self.__dict__.update(state)
        self._clear(0)

    def _weights(self) -> FloatArray:
        if self._solution is None:
            inverse, values = self._inverse[: self.size, : self.size], self._values[: self.size]
            self._solution = (inverse @ values) @ inverse
        return self._solution

    def _clear(self, num_points: int) -> None:
        """Remove all points and reserve space for others; take over the hyperparameters."""
        lengths = np.exp(self._theta[: self._num_lengths])[self._groups]
        self._scales = np.append(lengths, np.ones(self._num_linear))
        self._signal, self.noise = np.exp(self._theta[-2:])
        capacity = int(num_points * 1.6) + 40
        self._points = np.empty((capacity, len(self._scales)))
        self._values, self._inverse = np.empty(capacity), np.zeros((capacity, capacity))
        self._solution = None
        self.size = 0

    def _kernel(self, one: FloatArray, other: FloatArray) -> FloatArray:
        count = len(self._groups)
        distance = math.sqrt(5) * cdist(one[:, :count], other[:, :count])
        matern = self._signal * (1 + distance + np.square(distance) / 3) * np.exp(-distance)
        covariance: FloatArray = matern + one[:, count:] @ other[:, count:].T
        return covariance

    def _grow(self, capacity: int) -> None:
        count = self.size
        points, values, inverse = self._points, self._values, self._inverse
        self._points = np.empty((capacity, points.shape[1]))
        self._values, self._inverse = np.empty(capacity), np.zeros((capacity, capacity))
        self._points[:count], self._values[:count] = points[:count], values[:count]
        self._inverse[:count, :count] = inverse[:count, :count]

    def _optimize(self, features: FloatArray, values: FloatArray, rng: np.random.Generator) -> None:
        """Set lengths, signal and noise; of many points, by the best third and some others."""
        if len(values) > _MAX_FIT_POINTS:
            best = np.argsort(values)[: _MAX_FIT_POINTS // 3]
            others = rng.choice(len(values), _MAX_FIT_POINTS * 2 // 3, replace=False)
            kept = np.union1d(best, others)
            features, values = features[kept], values[kept]
        features, linear = np.split(features, [len(self._groups)], axis=1)
        squares = np.square(features[:, None] - features[None])
        by_parameter = np.stack(
            [squares[..., self._groups == each].sum(-1) for each in range(self._num_lengths)], -1
        )
        found = minimize(
            self._loss,
            self._theta,
            args=(by_parameter, linear @ linear.T, values),
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds,
            options={"maxiter": _MAX_STEPS},
        )
        self._theta = found.x

    def _loss(
        self, theta: FloatArray, squares: FloatArray, linear: FloatArray, values: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the negative log posterior and its gradient.

        Args:
            theta: Logarithms of lengths, signal and noise.
            squares: Squared differences of features by length, [n, n, lengths].
            linear: Kernel of the linear features, [n, n].
            values: [n].
        """
        count, num_lengths = len(values), self._num_lengths
        inverse_squares = np.exp(-2 * theta[:num_lengths])
        signal, noise = np.exp(theta[-2:])
        distance = np.sqrt(5 * np.maximum(squares @ inverse_squares, 1e-12))
        decay = np.exp(-distance)
        covariance = signal * (1 + distance + np.square(distance) / 3) * decay
        kernel = covariance + linear
        kernel[np.diag_indices(count)] += noise + _JITTER * signal
        try:
            factor = _inverse_factor(kernel)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = factor.T @ factor
        weights = inverse @ values
        slope = 0.5 * (inverse - np.outer(weights, weights))
        by_square = slope * (-(5 / 6) * (1 + distance) * decay * signal)
        off = theta - self._mode
        gradient = self._precision * off
        gradient[:num_lengths] -= 2 * inverse_squares * np.tensordot(by_square, squares, 2)
        gradient[-2] += (slope * covariance).sum()
        gradient[-1] += np.trace(slope) * noise
        loss = 0.5 * values @ weights - np.log(np.diag(factor)).sum()
        return float(loss + 0.5 * (self._precision * np.square(off)).sum()), gradient


def _inverse_factor(kernel: FloatArray) -> FloatArray:
    """Return the inverse of the Cholesky factor of a matrix."""
    inverse: FloatArray = dtrtri(np.linalg.cholesky(kernel).T)[0].T
    return inverse


def one_thread() -> AbstractContextManager[Any]:
    """Keep linear algebra to one thread: it is small, trials need the cores, and sums are exact."""
    limit: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=1)
    return limit


@lru_cache(1)
def _libraries(num_modules: int) -> ThreadpoolController:
    """Return the libraries that have threads; looked up again once further modules are loaded."""
    return ThreadpoolController()
