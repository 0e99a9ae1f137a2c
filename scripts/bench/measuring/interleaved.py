"""Interleaved timing, so that a noisy machine affects all contestants alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Contestant(Protocol):
    """Protocol of what is timed repeatedly."""

    def prepare(self) -> None:
        """Do the untimed part."""

    def run(self) -> None:
        """Do the timed part."""


@dataclass(frozen=True)
class Ratio:
    """Ratio of the durations of two contestants.

    Args:
        median: Over the rounds.
        low: First quartile over the rounds.
        high: Third quartile over the rounds.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the median and the quartiles."""
        return f"{self.median:.2f}x [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Timings:
    """Durations measured by :func:`take_turns`.

    Args:
        seconds: Duration of every round, by contestant.
    """

    seconds: Mapping[str, tuple[float, ...]]

    def median_s(self, name: str) -> float:
        """Return a contestant's median duration."""
        return statistics.median(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> Ratio:
        """Return the ratio of the durations of ``slow`` and ``fast`` within each round."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return ratio_of([first / second for first, second in pairs])


def ratio_of(ratios: list[float]) -> Ratio:
    """Return the median and the quartiles of the ratios of all rounds."""
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, low, high)


def take_turns(
    contestants: Mapping[str, Contestant],
    *,
    num_rounds: int,
    num_repeats: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Time each contestant once per round; the first one rotates.

    Args:
        contestants: By name.
        num_rounds: Rounds.
        num_repeats: Runs of a contestant within a round, of which the fastest counts: it is the
            one that other processes disturbed least.
        clock: Seconds that only grow.
    """
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(num_rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            durations = []
            for _ in range(num_repeats):
                contestants[name].prepare()
                started = clock()
                contestants[name].run()
                durations.append(clock() - started)
            seconds[name].append(min(durations))
    return Timings({name: tuple(values) for name, values in seconds.items()})
