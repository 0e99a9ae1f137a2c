"""Rungs of successive halving with promotion, all open at once or one after the other."""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise

import numpy as np

_PERCENTILE = 90


def rung_iterations(grace_period: int, reduction_factor: float, max_t: int) -> tuple[int, ...]:
    """Return the positions of the rungs, ascending.

    At ``grace_period * reduction_factor ** k``, rounded up, below ``max_t``; and at ``max_t``.
    """
    iterations = {max_t}
    exact: float = grace_period
    while (iteration := math.ceil(round(exact, 9))) < max_t:
        iterations.add(iteration)
        exact *= reduction_factor
    return tuple(sorted(iterations))


class Rung:
    """Trials that reached one iteration, best first."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self._losses: dict[str, float] = {}
        self._ranking: list[str] = []
        self._promoted: set[str] = set()

    def __contains__(self, trial_id: str) -> bool:
        """Return whether a trial reached the rung."""
        return trial_id in self._losses

    def __len__(self) -> int:
        """Return how many trials reached the rung."""
        return len(self._losses)

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """All trials that reached the rung with their losses, best first; ties by arrival."""
        return [(trial_id, self._losses[trial_id]) for trial_id in self._ranking]

    def loss(self, trial_id: str) -> float:
        """Return the loss of a trial that reached the rung."""
        return self._losses[trial_id]

    def enter(self, trial_id: str, loss: float) -> None:
        """Rank a trial; one that returns after a retry keeps its first loss."""
        if trial_id not in self._losses:
            self._losses[trial_id] = loss
            self._ranking.append(trial_id)
            self._ranking.sort(key=self._losses.__getitem__)

    def holds(self, trial_id: str) -> bool:
        """Return whether a trial reached the rung and was not promoted."""
        return trial_id in self._losses and trial_id not in self._promoted

    def promote(self, trial_id: str) -> None:
        """Mark a trial as promoted."""
        self._promoted.add(trial_id)

    def promotable(self, factor: float, failed: Container[str]) -> Iterator[str]:
        """Yield those of the best ``1 / factor`` that are not promoted, best first.

        Args:
            factor: One in so many of all trials at the rung is promoted, rounded down.
            failed: Trials whose places go to the next best.
        """
        num_places = int(round(len(self) / factor, 9))
        ranked = (trial_id for trial_id in self._ranking if trial_id not in failed)
        return (trial_id for trial_id in islice(ranked, num_places) if self.holds(trial_id))

    def waiting_worst_first(self) -> Iterator[str]:
        """Yield the trials that are not promoted, worst first."""
        return (trial_id for trial_id in reversed(self._ranking) if self.holds(trial_id))


class PromotionRungs:
    """Rungs of successive halving that decide which trials are promoted.

    A trial is promotable at a rung if it is among the best ``floor(n / reduction_factor)`` of the
    ``n`` trials that reached it so far (algorithm 2 of https://arxiv.org/abs/1810.05934). The place
    of a failed trial goes to the next best, a case that the paper does not cover.

    Args:
        iterations: Positions of the rungs, ascending; nothing is promoted from the last one.
        reduction_factor: One in so many trials is promoted from a rung.
    """

    def __init__(self, iterations: tuple[int, ...], reduction_factor: float) -> None:
        self.rungs = tuple(Rung(iteration) for iteration in iterations)
        self._factor = reduction_factor
        self._failed: set[str] = set()

    @property
    def limit(self) -> int:
        """The highest iteration that trials may reach."""
        return self._open[-1].iteration

    @property
    def _open(self) -> tuple[Rung, ...]:
        """The rungs that trials may reach."""
        return self.rungs

    def report(self, trial_id: str, iteration: int, loss: float) -> None:
        """Record a result; it is ranked if the trial is new at this rung.

        Args:
            trial_id: The trial.
            iteration: Its iteration, counted from 1.
            loss: A finite number; lower is better.
        """
        rung = self._rung_at(iteration)
        if rung is not None:
            rung.enter(trial_id, loss)

    def holds_at(self, trial_id: str, iteration: int) -> bool:
        """Return whether a trial is to wait at this iteration."""
        rung = self._rung_at(iteration)
        return rung is not None and rung.holds(trial_id)

    def holds(self, trial_id: str) -> bool:
        """Return whether a trial was not promoted from its highest rung."""
        height = self.height(trial_id)
        return height > 0 and self.rungs[height - 1].holds(trial_id)

    def height(self, trial_id: str) -> int:
        """Return the number of a trial's highest rung, from 1; 0 for none."""
        return max((n for n, rung in enumerate(self.rungs, 1) if trial_id in rung), default=0)

    def next_up(self, is_candidate: Callable[[str], bool]) -> str | None:
        """Return the best promotable trial of the highest rung that has one."""
        for rung in reversed(self._open[:-1]):
            for trial_id in rung.promotable(self._factor, self._failed):
                if is_candidate(trial_id):
                    return trial_id
        return None

    def worst_waiting(self, is_candidate: Callable[[str], bool]) -> str | None:
        """Return the worst waiting trial of the lowest rung that has one."""
        waiting = (trial_id for rung in self.rungs for trial_id in rung.waiting_worst_first())
        return next((trial_id for trial_id in waiting if is_candidate(trial_id)), None)

    def promote(self, trial_id: str) -> None:
        """Promote a trial from its highest rung."""
        self.rungs[self.height(trial_id) - 1].promote(trial_id)

    def fail(self, trial_id: str) -> None:
        """Free a trial's places for the next best."""
        self._failed.add(trial_id)

    def readmit(self, trial_id: str) -> None:
        """Restore the places of a failed trial that is retried."""
        self._failed.discard(trial_id)

    def _rung_at(self, iteration: int) -> Rung | None:
        """Return the highest rung at or below an iteration."""
        reached = (rung for rung in reversed(self.rungs) if rung.iteration <= iteration)
        return next(reached, None)

    def __str__(self) -> str:
        """Return how many trials reached each rung, highest first."""
        return ", ".join(f"{rung.iteration}: {len(rung)}" for rung in reversed(self.rungs))


class GrowingRungs(PromotionRungs):
    """Rungs of PASHA (Bohdal et al., ICLR 2023, https://arxiv.org/abs/2207.06940).

    Two rungs are open at first. Each time a trial reaches the highest open one, the ranking there
    is compared with that of the same trials one rung below; if they differ by more than the noise,
    the next rung is opened.

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
        was_at_top = trial_id in self._open[-1]
        super().report(trial_id, iteration, loss)
        if was_at_top or trial_id not in self._open[-1] or self._num_open == len(self.rungs):
            return
        below, top = self._open[-2:]
        noise = ranking_noise(self._curves, below.iteration, top.iteration)
        if noise is not None:
            self.epsilon = noise
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
    losses_below, top_ids = dict(below), {trial_id for trial_id, _ in top}
    loss_by_rank = [loss for trial_id, loss in below if trial_id in top_ids]
    ranked_ids = [trial_id for trial_id, _ in top if trial_id in losses_below]
    return all(
        abs(losses_below[trial_id] - loss) <= epsilon
        for trial_id, loss in zip(ranked_ids, loss_by_rank, strict=True)
    )


def ranking_noise(curves: Mapping[str, Mapping[int, float]], below: int, top: int) -> float | None:
    """Estimate the noise of losses from pairs of trials whose curves cross repeatedly.

    Epsilon of https://arxiv.org/abs/2207.06940: of all pairs in which one trial leads, trailed
    before and led before that, the 90th percentile of the distances at their last common iteration.

    Args:
        curves: Losses by iteration, by trial.
        below: The rung below: pairs need a common iteration above it.
        top: The top rung: later iterations do not count.

    Returns:
        None if there is no such pair.
    """
    long_curves = [curve for curve in curves.values() if max(curve) > below]
    distances = []
    for one, other in combinations(long_curves, 2):
        steps = sorted(step for step in one.keys() & other.keys() if step <= top)
        leads = [difference < 0 for step in steps if (difference := one[step] - other[step])]
        crossings = sum(before != after for before, after in pairwise(leads))
        if steps and steps[-1] > below and crossings > 1:
            distances.append(abs(one[steps[-1]] - other[steps[-1]]))
    return float(np.percentile(distances, _PERCENTILE)) if distances else None
