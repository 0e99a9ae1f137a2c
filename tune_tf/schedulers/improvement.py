"""Expected improvement, and what an epoch towards it is worth."""

import math
from typing import Final

import numpy as np
from scipy.special import ndtr, stdtr

from tune_tf.schedulers.gaussian_process import FloatArray

_NUM_POINTS: Final = 29
_GRID: Final = np.linspace(-3.5, 3.5, _NUM_POINTS)
_STEP: Final = float(_GRID[1] - _GRID[0])
_OFFSETS: Final = np.arange(_NUM_POINTS)[None] - np.arange(_NUM_POINTS)[:, None] + _NUM_POINTS - 1
_NUM_BISECTIONS: Final = 12
_MIDDLE: Final = _NUM_POINTS // 2
_DEGREES_OF_FREEDOM: Final = 3


def expected_improvement(means: FloatArray, variances: FloatArray, best: float) -> FloatArray:
    """Return by how much normal values are expected to be below ``best``, where they are."""
    deviations = np.sqrt(np.maximum(variances, 1e-10))
    distance = (best - means) / deviations
    density = np.exp(-0.5 * np.square(distance)) / math.sqrt(2 * math.pi)
    improvement: FloatArray = deviations * (distance * ndtr(distance) + density)
    return improvement


def chance_to_beat(means: FloatArray, variances: FloatArray, best: float) -> FloatArray:
    """Return the probability that values are below ``best``.

    By Student's t distribution with three degrees of freedom, as the variances are estimates: of
    trials to which the normal distribution gave less than 1 in 200, 1 in 17 won.
    """
    distance = (best - means) / np.sqrt(np.maximum(variances, 1e-10))
    chance: FloatArray = stdtr(_DEGREES_OF_FREEDOM, distance)
    return chance


def improvement_price(
    means: FloatArray, variances: FloatArray, last: FloatArray, best: float, costs: FloatArray
) -> FloatArray:
    """Return the largest price of an epoch at which a trial is still worth to go on with.

    A trial goes on from rung to rung, pays the price for the epochs in between, learns a normally
    distributed part of its last value at each, and may be given up at each: the index of Gittins
    (https://doi.org/10.1111/j.2517-6161.1979.tb01068.x) with the improvement over ``best`` at the
    last rung as its reward, by dynamic programming over a grid of means. Improvement over expected
    cost instead lets a cheap first epoch always win, and no trial ever ends.

    Args:
        means: Predicted last values, [n].
        variances: What each rung resolves, [n, rungs].
        last: The last rung that each has passed, [n]; -1 for a trial not begun.
        best: The value to improve on.
        costs: Epochs from the rung before to each, [rungs].
    """
    prices = np.zeros(len(means))
    top = len(costs) - 1
    for rung in range(-1, top):
        here = np.flatnonzero(last == rung)
        if not len(here):
            continue
        if rung == top - 1:
            improvement = expected_improvement(means[here], variances[here].sum(1), best)
            prices[here] = improvement / costs[top]
            continue
        prices[here] = _staged_prices(
            means[here],
            np.sqrt(np.maximum(variances[here, rung + 1 :], 1e-10)),
            best,
            costs[rung + 1 :],
        )
    return prices


def _staged_prices(
    means: FloatArray, deviations: FloatArray, best: float, costs: FloatArray
) -> FloatArray:
    """Return the prices of trials with two or more rungs ahead; deviations are [n, rungs]."""
    total = np.sqrt(np.square(deviations).sum(1))
    gain, parts = (best - means) / total, deviations / total[:, None]
    steps = [_transition(parts[:, each]) for each in range(len(costs) - 1)]
    reward = expected_improvement(-(gain[:, None] + _GRID[None]), np.square(parts[:, -1:]), 0.0)
    now = expected_improvement(-gain, np.ones(len(gain)), 0.0)
    high = np.log(np.maximum(now, 1e-300) / costs[0])
    low = high - math.log(costs.sum() / costs[0])  # the price without stops on the way
    for _ in range(_NUM_BISECTIONS):
        price = np.exp((low + high) / 2)[:, None]
        worth = np.maximum(reward - price * costs[-1], 0)
        for each in range(len(costs) - 2, -1, -1):
            worth = np.matmul(steps[each], worth[:, :, None])[:, :, 0] - price * costs[each]
            if each:
                worth = np.maximum(worth, 0)
        is_worth = worth[:, _MIDDLE] > 0
        middle = (low + high) / 2
        low, high = np.where(is_worth, middle, low), np.where(is_worth, high, middle)
    prices: FloatArray = np.exp(low) * total
    return prices


def _transition(deviations: FloatArray) -> FloatArray:
    """Return weights [n, from, to] of a normal step between grid points, exact for linear worth.

    The weights of a piecewise linear function are second differences of expected positive parts.
    """
    ends = np.arange(-_NUM_POINTS, _NUM_POINTS + 1) * _STEP
    positive = expected_improvement(-ends[None], np.square(deviations)[:, None], 0.0) / _STEP
    weights = (positive[:, 2:] - 2 * positive[:, 1:-1] + positive[:, :-2])[:, _OFFSETS]
    beyond = 1 - weights.sum(2)
    upper = np.arange(_NUM_POINTS) >= _MIDDLE
    weights[:, upper, -1] += beyond[:, upper]
    weights[:, ~upper, 0] += beyond[:, ~upper]
    matrix: FloatArray = weights
    return matrix
