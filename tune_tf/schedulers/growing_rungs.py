"""Rungs that are opened while the ranking of the best trials is unstable, as in PASHA."""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from tune_tf.schedulers.rungs import PromotionRungs, Rung

_PERCENTILE = 90


class GrowingRungs(PromotionRungs):
    """Rungs of PASHA (Bohdal et al., ICLR 2023, https://arxiv.org/abs/2207.06940).

    Two rungs are open at first. Each time a trial reaches the highest open one, the ranking there
    is compared with that of the same trials one rung below; if they differ by more than the noise,
    the next rung is opened.

    Args:
        iterations: Positions of the rungs, ascending.
        reduction_factor: One in so many trials is promoted from a rung.

    Attributes:
        epsilon: Difference of losses that is attributed to noise.
    """

    def __init__(self, iterations: tuple[int, ...], reduction_factor: float) -> None:
        super().__init__(iterations, reduction_factor)
        self.epsilon = 0.0
        self._num_open = min(2, len(iterations))
        self._curves: dict[str, dict[int, float]] = {}

    @property
    def _open(self) -> tuple[Rung, ...]:
        return self.rungs[: self._num_open]

    def report(self, trial_id: str, iteration: int, loss: float) -> None:
        """Record a result, which may open another rung; see :meth:`PromotionRungs.report`."""
        self._curves.setdefault(trial_id, {})[iteration] = loss
        came_before = trial_id in self._open[-1]
        super().report(trial_id, iteration, loss)
        if came_before or trial_id not in self._open[-1] or self._num_open == len(self.rungs):
            return
        below, top = self._open[-2:]
        noise = ranking_noise(self._curves, below.iteration, top.iteration)
        self.epsilon = self.epsilon if noise is None else noise
        if not is_same_ranking(below.ranking, top.ranking, self.epsilon):
            self._num_open += 1


def is_same_ranking(
    below: Sequence[tuple[str, float]], top: Sequence[tuple[str, float]], epsilon: float
) -> bool:
    """Return whether two rankings agree up to small differences at the lower rung.

    The soft ranking of https://arxiv.org/abs/2207.06940: the trial at each rank of the top must be
    one of those whose loss below is within ``epsilon`` of the loss of the trial that has this rank
    below, among the trials that reached the top.

    Args:
        below: Trials and losses at the rung below, best first.
        top: The same at the top.
        epsilon: The largest insignificant difference of losses.
    """
    known, came = dict(below), {trial_id for trial_id, _ in top}
    at_rank = [loss for trial_id, loss in below if trial_id in came]
    ranked = [trial_id for trial_id, _ in top if trial_id in known]
    return all(
        abs(known[trial_id] - loss) <= epsilon
        for trial_id, loss in zip(ranked, at_rank, strict=True)
    )


def ranking_noise(
    curves: Mapping[str, Mapping[int, float]], above: int, up_to: int
) -> float | None:
    """Estimate the noise of losses from pairs of trials whose curves cross repeatedly.

    Epsilon of https://arxiv.org/abs/2207.06940: of all pairs in which one trial leads, trailed
    before and led before that, the 90th percentile of the distances at their last common iteration.

    Args:
        curves: Losses by iteration, by trial.
        above: The rung below: pairs need a common iteration above it.
        up_to: The top rung: later iterations do not count.

    Returns:
        None if there is no such pair.
    """
    far = [curve for curve in curves.values() if any(iteration > above for iteration in curve)]
    distances = []
    for one, other in combinations(far, 2):
        shared = sorted(step for step in one.keys() & other.keys() if step <= up_to)
        ahead = [difference < 0 for step in shared if (difference := one[step] - other[step])]
        crossings = sum(before != after for before, after in pairwise(ahead))
        if shared and shared[-1] > above and crossings > 1:
            distances.append(abs(one[shared[-1]] - other[shared[-1]]))
    return float(np.percentile(distances, _PERCENTILE)) if distances else None
