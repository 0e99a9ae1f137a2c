"""Prediction of a trial's last loss from its config and its losses at rungs."""

from collections.abc import Callable
from typing import Final

import numpy as np

from tune_tf.schedulers.gaussian_process import FloatArray, GaussianProcess

_MIN_VALUES_TO_FREEZE: Final = 12
_UNKNOWN_VARIANCE: Final = 0.3
_PRIOR_COUNT: Final = 4.0
_SLOPES: Final = (-3.0, 3.0)
_LEAST_LOSS: Final = 1e-12
_LEAST_ERROR: Final = 1e-3


class CurveModel:
    """Gaussian processes of learning curves, one a rung.

    The loss at the first rung is a process of the config, and each next one is linear in the one
    before plus a process of the config: the autoregressive model of Kennedy and O'Hagan
    (https://doi.org/10.1093/biomet/87.1.1), with rungs as levels. Positive losses count by their
    logarithms, and negative accuracies by those of the error rates. All rungs have one scale: the
    distance to the rung's median, over the root mean square distance of the better half at the
    first rung; where it is positive, its logarithm ``log1p``.

    Args:
        num_rungs: Number of rungs.
        groups: The number of the parameter that each feature belongs to, from 0.
    """

    def __init__(self, num_rungs: int, groups: FloatArray) -> None:
        self.num_rungs = num_rungs
        self._processes = [GaussianProcess(groups) for _ in range(num_rungs)]
        self._warp: Callable[[FloatArray], FloatArray] = _identity
        self._centers, self._scale = np.zeros(num_rungs), 1.0
        self._is_frozen = [False] * num_rungs
        self._is_fitted = [False] * num_rungs
        self._offsets, self._slopes = np.zeros(num_rungs), np.ones(num_rungs)

    def fit(self, features: FloatArray, losses: FloatArray, rng: np.random.Generator) -> None:
        """Fit the model anew to features [n, features] and losses [n, rungs], NaN if unknown."""
        if self._warp is not (warp := _warp_of(losses[np.isfinite(losses)])):
            self._warp, self._is_frozen = warp, [False] * self.num_rungs
        self._slopes[:], self._offsets[:] = 1.0, 0.0
        self._is_fitted = [False] * self.num_rungs
        below = np.full(len(losses), np.nan)
        for rung in range(self.num_rungs):
            known = np.isfinite(losses[:, rung])
            self._scale_rung(rung, self._warp(losses[known]))
            values = self.scaled(losses[:, rung], rung)
            if known.sum() > (1 if rung else 0):
                rest = values[known] - self._line(rung, below[known], values[known])
                self._processes[rung].fit(features[known], rest, rng)
                self._is_fitted[rung] = True
            below = values

    def append(self, feature: FloatArray, losses: FloatArray, rung: int) -> None:
        """Add a trial's loss at a rung: features [features], losses [rungs]."""
        if self._is_fitted[rung]:
            value, below = self.scaled(losses, rung)[rung], 0.0
            if rung:
                below = self._slopes[rung] * self.scaled(losses, rung - 1)[rung - 1]
            self._processes[rung].append(feature, float(value - self._offsets[rung] - below))

    def append_expected(self, feature: FloatArray, rung: int) -> None:
        """Add what is expected of a trial at a rung, as of one that is on the way to it."""
        if self._is_fitted[rung]:
            mean, _ = self._processes[rung].predict(feature[None])
            self._processes[rung].append(feature, float(mean[0]))

    @property
    def sizes(self) -> list[int]:
        """Number of losses at each rung."""
        return [each.size for each in self._processes]

    def truncate(self, sizes: list[int]) -> None:
        """Remove what was appended after the processes had these ``sizes``."""
        for process, size in zip(self._processes, sizes, strict=True):
            process.truncate(size)

    def scaled(self, losses: FloatArray, rung: int) -> FloatArray:
        """Return losses at a rung on the model's scale; NaN stays NaN."""
        distance = (self._warp(losses) - self._centers[rung]) / self._scale
        return np.where(distance > 0, np.log1p(np.maximum(distance, 0)), distance)

    def predict(self, features: FloatArray, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predict scaled losses at the last rung.

        Args:
            features: [n, features].
            losses: [n, rungs], NaN where unknown; known ones precede unknown ones.

        Returns:
            The means, [n]; and the variances that each rung will resolve, [n, rungs], 0 for those
            passed. Their sum is the variance of the prediction.
        """
        last = np.isfinite(losses).sum(axis=1) - 1
        means, variances = np.zeros(len(losses)), np.zeros(losses.shape)
        for rung in range(self.num_rungs):
            if rung:
                here = last == rung - 1
                means[here] = self.scaled(losses[here, rung - 1], rung - 1)
            ahead = last < rung
            if not ahead.any():
                continue
            slope = self._slopes[rung] if rung else 0.0
            means[ahead] = self._offsets[rung] + slope * means[ahead]
            variances[ahead] *= slope * slope
            variances[ahead, rung] = _UNKNOWN_VARIANCE
            if self._is_fitted[rung]:
                process = self._processes[rung]
                mean, variance = process.predict(features[ahead])
                means[ahead] += mean
                variances[ahead, rung] = variance + process.noise
        done = last == self.num_rungs - 1
        means[done] = self.scaled(losses[done, -1], self.num_rungs - 1)
        return means, variances

    def _scale_rung(self, rung: int, losses: FloatArray) -> None:
        """Set a rung's center, unless it is frozen, by warped losses of those that reached it."""
        if self._is_frozen[rung]:
            return
        own, spread = losses[:, rung], 0.0
        if rung == 0:
            self._centers[0] = np.median(own)
            better = own[own <= self._centers[0]]
            spread = float(np.sqrt(np.mean(np.square(better - self._centers[0]))))
            self._scale = max(spread, 1e-9)
        else:
            step = np.median(own - losses[:, rung - 1]) if len(own) else 0.0
            self._centers[rung] = self._centers[rung - 1] + step
        is_flat = rung == 0 and spread == 0
        self._is_frozen[rung] = len(own) >= _MIN_VALUES_TO_FREEZE and not is_flat

    def _line(self, rung: int, below: FloatArray, values: FloatArray) -> FloatArray:
        """Fit the line from the rung below to this one; return its values."""
        if rung == 0:
            self._offsets[0] = values.mean()
            return np.full(len(values), self._offsets[0])
        centered, prior = below - below.mean(), _PRIOR_COUNT / 4
        covariance, variance = (centered * (values - values.mean())).sum(), (centered**2).sum()
        self._slopes[rung] = np.clip((covariance + prior) / (variance + prior), *_SLOPES)
        self._offsets[rung] = values.mean() - self._slopes[rung] * below.mean()
        line: FloatArray = self._offsets[rung] + self._slopes[rung] * below
        return line


def _identity(losses: FloatArray) -> FloatArray:
    return losses


def _log_loss(losses: FloatArray) -> FloatArray:
    """Return logarithms: where a loss falls by orders of magnitude, they tell the best apart."""
    logarithms: FloatArray = np.log(np.maximum(losses, _LEAST_LOSS))
    return logarithms


def _log_error(losses: FloatArray) -> FloatArray:
    """Return logarithms of error rates, from negative accuracies."""
    return _log_loss(1 + losses + _LEAST_ERROR)


def _warp_of(losses: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the scale to model losses on: logarithmic for positive ones and for accuracies."""
    if losses.min() > 0:
        return _log_loss
    return _log_error if losses.min() >= -1 and losses.max() <= 0 else _identity
