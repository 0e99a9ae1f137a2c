"""Comparison of two searches over seeds: ratio, interval and significance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu

_NUM_RESAMPLES = 4000
_SIGNIFICANT = 0.05

Epochs = npt.NDArray[np.float64]
"""Epochs that a contestant took, one entry a seed; the whole budget where it failed."""


@dataclass(frozen=True)
class Comparison:
    """Ratio of our epochs to another search's; ours is better below 1.

    Args:
        ratio: Geometric mean over seeds, and over problems where there are several.
        low: Lower end of the 95 % bootstrap interval over seeds.
        high: Upper end.
    """

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the ratio and its interval."""
        return f"{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}]"


def compare(cells: Sequence[tuple[Epochs, Epochs]]) -> Comparison:
    """Return the geometric mean of our epochs over theirs.

    Each cell is a problem: ``(ours, theirs)`` by seed. Seeds are resampled in each cell for itself
    and in pairs, so that a seed that is hard for both does not widen the interval.
    """
    rng = np.random.default_rng(0)
    means, resampled = [], []
    for ours, theirs in cells:
        logs = np.log(ours) - np.log(theirs)
        means.append(logs.mean())
        picked = rng.integers(len(logs), size=(_NUM_RESAMPLES, len(logs)))
        resampled.append(logs[picked].mean(axis=1))
    low, high = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975])
    return Comparison(*(float(np.exp(log)) for log in (np.mean(means), low, high)))


def p_value(ours: Epochs, theirs: Epochs) -> float:
    """Return the p-value of the two-sided Mann-Whitney U test."""
    if np.all(ours == ours[0]) and np.all(theirs == ours[0]):
        return 1.0
    return float(mannwhitneyu(ours, theirs, alternative="two-sided").pvalue)


def is_worse(ours: Epochs, theirs: Epochs) -> bool:
    """Return whether ours took significantly more epochs at the 5% level."""
    wins = mannwhitneyu(ours, theirs).statistic / (len(ours) * len(theirs))
    return bool(wins > 0.5 and p_value(ours, theirs) < _SIGNIFICANT)
