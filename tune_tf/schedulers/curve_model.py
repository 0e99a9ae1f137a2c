"""Prediction of a trial's last loss from its config and its losses at rungs."""

import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from tune_tf.schedulers.gaussian_process import FloatArray, GaussianProcess

_MIN_VALUES_TO_FREEZE: Final = 12
_UNKNOWN_VARIANCE: Final = 0.3
_LINE_SDS: Final = np.array([1.0, 0.5, 0.5])
"""Prior standard deviations of a line's offset and of its two slopes, which are around 1."""
_MAX_ON_LINE: Final = 10.0
_LEAST_VARIANCE: Final = 1e-12
_LEAST_LOSS: Final = 1e-12
_LEAST_ERROR: Final = 1e-3


class _Below(NamedTuple):
    """What is known of trials' losses below a rung.

    Args:
        values: [n, 2], on the model's scale: what is predicted of the loss at the rung before, from
            the config and all losses up to that rung; and its difference to the loss, 0 where the
            trial has not been there.
        variance: That of the prediction, [n]; 0 where the trial has been there.
    """

    values: FloatArray
    variance: FloatArray


class CurveModel:
    """Gaussian processes of learning curves, one a rung.

    The loss at the first rung is a process of the config. At each next one it is the loss before
    plus a process of the config and a line: the autoregressive model of Kennedy and O'Hagan
    (https://doi.org/10.1093/biomet/87.1.1), with rungs as levels, and with normal priors of the
    line's slopes. There are two, for what is predicted of the loss before and for the difference
    to the prediction: the latter may be noise that does not last.

    Positive losses count by their logarithms, and negative accuracies by those of the error rates.
    All rungs have one scale: the distance to the rung's median, over the root mean square distance
    of the better half at the first rung; where it is positive, its logarithm ``log1p``.

    Args:
        num_rungs: Number of rungs.
        groups: The number of the parameter that each feature belongs to, from 0.
    """

    def __init__(self, num_rungs: int, groups: FloatArray) -> None:
        self.num_rungs = num_rungs
        self._processes = [GaussianProcess(groups, len(_LINE_SDS)) for _ in range(num_rungs)]
        self._warp: Callable[[FloatArray], FloatArray] = _identity
        self._centers, self._scale = np.zeros(num_rungs), 1.0
        self._is_frozen = [False] * num_rungs
        self._is_fitted = [False] * num_rungs

    def fit(self, features: FloatArray, losses: FloatArray, rng: np.random.Generator) -> None:
        """Fit the model anew to features [n, features] and losses [n, rungs], NaN if unknown."""
        if self._warp is not (warp := _warp_of(losses[np.isfinite(losses)])):
            self._warp, self._is_frozen = warp, [False] * self.num_rungs
        self._is_fitted = [False] * self.num_rungs
        for rung, below in zip(range(self.num_rungs), self._below(features, losses), strict=False):
            known = np.isfinite(losses[:, rung])
            self._scale_rung(rung, self._warp(losses[known]))
            if known.sum() > (1 if rung else 0):
                points, expected = _on_line(features[known], below.values[known])
                values = self.scaled(losses[known, rung], rung)
                self._processes[rung].fit(points, values - expected, rng)
                self._is_fitted[rung] = True

    def append(self, feature: FloatArray, losses: FloatArray, rung: int) -> None:
        """Add a trial's loss at a rung: features [features], losses [rungs]."""
        if self._is_fitted[rung]:
            points, expected = self._points(feature[None], losses[None], rung)
            value = self.scaled(losses[None, rung], rung) - expected
            self._processes[rung].append(points, value)

    def append_expected(self, features: FloatArray, losses: FloatArray) -> None:
        """Add what is expected of trials at their next rungs, as of ones on the way to them.

        Args:
            features: [n, features].
            losses: [n, rungs], NaN where unknown; none is known at the last rung.
        """
        next_rungs = np.isfinite(losses).sum(axis=1)
        for rung in np.unique(next_rungs):
            if self._is_fitted[rung]:
                here = next_rungs == rung
                points, _ = self._points(features[here], losses[here], rung)
                process = self._processes[rung]
                process.append(points, process.means(points))

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
        _, *below = self._below(features, losses)
        variances, left = np.zeros(losses.shape), np.zeros(len(losses))
        for rung, (_, variance) in enumerate(below):
            slope, slope_of_rest = self._slopes(rung + 1)
            smooth, noise = left + variance, np.where(variance > 0, self._noise(rung), 0.0)
            both = np.maximum(smooth + noise, _LEAST_VARIANCE)
            variances[:, :rung] *= slope**2
            # What the loss says of the next one: the square of their covariance, by its variance.
            variances[:, rung] = np.square(slope * smooth + slope_of_rest * noise) / both
            left = (slope - slope_of_rest) ** 2 * smooth * noise / both
        return below[-1].values.sum(axis=1), variances

    def _below(self, features: FloatArray, losses: FloatArray) -> Iterator[_Below]:
        """Yield what is known below each rung, and then beyond the last one, by fitted rungs."""
        below = _Below(np.zeros((len(losses), 2)), np.zeros(len(losses)))
        yield below
        for rung in range(self.num_rungs):
            points, smooth = _on_line(features, below.values)
            values = self.scaled(losses[:, rung], rung)
            is_ahead, variance = np.isnan(values), np.zeros(len(values))
            variance[is_ahead] = _UNKNOWN_VARIANCE
            if self._is_fitted[rung]:
                process = self._processes[rung]
                mean, variance[is_ahead] = process.predict(points[is_ahead])
                smooth[is_ahead] += mean
                smooth[~is_ahead] += process.means(points[~is_ahead])
            rest = np.nan_to_num(values - smooth)
            below = _Below(np.stack([smooth, rest], axis=1), variance)
            yield below

    def _points(
        self, features: FloatArray, losses: FloatArray, rung: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return trials' points in the process of a rung, and the losses without the process."""
        below = next(itertools.islice(self._below(features, losses), rung, None))
        return _on_line(features, below.values)

    def _noise(self, rung: int) -> float:
        return self._processes[rung].noise if self._is_fitted[rung] else 0.0

    def _slopes(self, rung: int) -> FloatArray:
        """Return the slopes of a rung's line; 1 beyond the last rung."""
        slopes = np.ones(2)
        if rung < self.num_rungs and self._is_fitted[rung]:
            slopes += _LINE_SDS[1:] * self._processes[rung].slopes[1:]
        return slopes

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


def _on_line(features: FloatArray, below: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return features [n, features] with those of a line, and the values where slopes are 1."""
    parts = np.clip(below, -_MAX_ON_LINE, _MAX_ON_LINE)
    line = np.column_stack([np.ones(len(parts)), parts]) * _LINE_SDS
    return np.concatenate([features, line], axis=1), below.sum(axis=1)


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
