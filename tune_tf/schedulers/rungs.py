"""The rungs of successive halving: which trials came to them, and which of these may go on."""

import math
from collections.abc import Callable, Container, Iterator
from itertools import islice


def rung_iterations(grace_period: int, reduction_factor: float, max_t: int) -> tuple[int, ...]:
    """Return where rungs stand, ascending.

    At ``grace_period * reduction_factor ** k``, rounded up, below ``max_t``; and at ``max_t``.
    """
    found = {max_t}
    exact: float = grace_period
    while (iteration := math.ceil(round(exact, 9))) < max_t:
        found.add(iteration)
        exact *= reduction_factor
    return tuple(sorted(found))


class Rung:
    """The trials that came to one iteration, best first.

    Args:
        iteration: Where the rung stands.
    """

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self._losses: dict[str, float] = {}
        self._ranking: list[str] = []
        self._promoted: set[str] = set()

    def __contains__(self, trial_id: str) -> bool:
        """Return whether a trial came here."""
        return trial_id in self._losses

    def __len__(self) -> int:
        """Return how many trials came here."""
        return len(self._losses)

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """All trials that came here with their losses, best first; of equals the earlier one."""
        return [(trial_id, self._losses[trial_id]) for trial_id in self._ranking]

    def enter(self, trial_id: str, loss: float) -> None:
        """Rank a trial; one that comes again, after a retry, keeps its first loss."""
        if trial_id not in self._losses:
            self._losses[trial_id] = loss
            self._ranking.append(trial_id)
            self._ranking.sort(key=self._losses.__getitem__)

    def holds(self, trial_id: str) -> bool:
        """Return whether a trial came here and was not promoted."""
        return trial_id in self._losses and trial_id not in self._promoted

    def promote(self, trial_id: str) -> None:
        """Let a trial go on."""
        self._promoted.add(trial_id)

    def promotable(self, factor: float, failed: Container[str]) -> Iterator[str]:
        """Yield those of the best ``1 / factor`` that are held, best first.

        Args:
            factor: One in so many of all that came here goes on, rounded down.
            failed: Trials that have given up their places to the next best.
        """
        places = int(round(len(self) / factor, 9))
        ranked = (trial_id for trial_id in self._ranking if trial_id not in failed)
        return (trial_id for trial_id in islice(ranked, places) if self.holds(trial_id))

    def worst_held(self) -> Iterator[str]:
        """Yield those that are held, worst first."""
        return (trial_id for trial_id in reversed(self._ranking) if self.holds(trial_id))


class RungLadder:
    """Who may go on in successive halving with promotion.

    A trial is promotable if it is held at a rung where it is among the best ``floor(n /
    reduction_factor)`` of the ``n`` trials that came there so far (algorithm 2 of
    https://arxiv.org/abs/1810.05934). Where a trial fails, its place goes to the next best, which
    the paper does not speak of.

    Args:
        iterations: Where the rungs stand, ascending; nothing is promoted from the last one.
        reduction_factor: One trial in so many goes on from a rung.
    """

    def __init__(self, iterations: tuple[int, ...], reduction_factor: float) -> None:
        self.rungs = tuple(Rung(iteration) for iteration in iterations)
        self._factor = reduction_factor
        self._failed: set[str] = set()

    @property
    def limit(self) -> int:
        """The iteration that trials run to at most."""
        return self._open[-1].iteration

    @property
    def _open(self) -> tuple[Rung, ...]:
        """The rungs that trials may come to."""
        return self.rungs

    def report(self, trial_id: str, iteration: int, loss: float) -> None:
        """Take up a result; it is ranked if the trial was not at this rung before.

        Args:
            trial_id: The trial.
            iteration: How far it is, counted from 1.
            loss: A finite number, the less the better.
        """
        rung = self._rung_at(iteration)
        if rung is not None:
            rung.enter(trial_id, loss)

    def holds_at(self, trial_id: str, iteration: int) -> bool:
        """Return whether a trial is to wait at this iteration."""
        rung = self._rung_at(iteration)
        return rung is not None and rung.holds(trial_id)

    def holds(self, trial_id: str) -> bool:
        """Return whether a trial was not promoted from the highest rung that it came to."""
        rung = next((rung for rung in reversed(self.rungs) if trial_id in rung), None)
        return rung is not None and rung.holds(trial_id)

    def height(self, trial_id: str) -> int:
        """Return the number of the highest rung that a trial came to, from 1; 0 for none."""
        numbers = range(len(self.rungs), 0, -1)
        return next((number for number in numbers if trial_id in self.rungs[number - 1]), 0)

    def next_up(self, can_go: Callable[[str], bool]) -> str | None:
        """Return the best promotable trial of the highest rung that has one.

        Args:
            can_go: Whether a trial could go on now.
        """
        for rung in reversed(self._open[:-1]):
            for trial_id in rung.promotable(self._factor, self._failed):
                if can_go(trial_id):
                    return trial_id
        return None

    def last_held(self, can_go: Callable[[str], bool]) -> str | None:
        """Return the worst held trial of the lowest rung that has one."""
        held = (trial_id for rung in self.rungs for trial_id in rung.worst_held())
        return next((trial_id for trial_id in held if can_go(trial_id)), None)

    def promote(self, trial_id: str) -> None:
        """Let a trial go on from the highest rung that it came to."""
        self.rungs[self.height(trial_id) - 1].promote(trial_id)

    def fail(self, trial_id: str) -> None:
        """Let a trial's places go to the next best."""
        self._failed.add(trial_id)

    def come_back(self, trial_id: str) -> None:
        """Give a trial that failed and is tried again its places back."""
        self._failed.discard(trial_id)

    def _rung_at(self, iteration: int) -> Rung | None:
        """Return the highest rung that stands at an iteration or before it."""
        reached = (rung for rung in reversed(self.rungs) if rung.iteration <= iteration)
        return next(reached, None)

    def __str__(self) -> str:
        """Return how many trials came to each rung, highest first."""
        return ", ".join(f"{rung.iteration}: {len(rung)}" for rung in reversed(self.rungs))
