"""A ladder that gets another rung while the ranking at its top is not stable."""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from tune_tf.schedulers.rungs import Rung, RungLadder

_PERCENTILE = 90


class GrowingRungs(RungLadder):
    """The ladder of PASHA (Bohdal et al., ICLR 2023, https://arxiv.org/abs/2207.06940).

    Two rungs are open at first. Each time that a trial comes to the highest open one, the ranking
    there is compared with the ranking of the same trials one rung below; if they disagree by more
    than the noise, the next rung is opened.

    Args:
        iterations: Where the rungs stand, ascending.
        reduction_factor: One trial in so many goes on from a rung.

    Attributes:
        epsilon: What losses differ by for no other reason than noise.
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
        """Take up a result, which may open another rung; see :meth:`Ladder.report`."""
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
    """Return whether a ranking is that of the rung below but for small differences there.

    The soft ranking of https://arxiv.org/abs/2207.06940: the trial at each rank of the top must be
    one of those whose loss below is within ``epsilon`` of the loss of the trial that has this rank
    below, among the trials that came to the top.

    Args:
        below: Trials and losses at the rung below, best first.
        top: The same at the top.
        epsilon: The largest difference of losses that means nothing.
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
    """Return how much trials differ whose curves cross and cross back.

    As https://arxiv.org/abs/2207.06940 estimates epsilon: of all pairs of trials in which one is
    ahead, was behind before, and was ahead before that, the 90th percentile of the distances at the
    last iteration that both have.

    Args:
        curves: Losses by iteration, by trial.
        above: Pairs count that have an iteration in common above this one, the rung below.
        up_to: Iterations after this one, the top rung, do not count.

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
