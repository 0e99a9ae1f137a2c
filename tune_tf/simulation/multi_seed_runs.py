"""Simulated sweeps of one pairing over several seeds."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tune_tf.simulation.pairing import Pairing
from tune_tf.simulation.problem import Problem
from tune_tf.simulation.trace import StopReason, Trace
from tune_tf.simulation.virtual_sweep import simulate


@dataclass(frozen=True)
class MultiSeedRuns:
    """Simulated sweeps that differ only in the seed; ``real_s`` is their total real time."""

    problem: Problem
    traces: tuple[Trace, ...]
    budget_epochs: int
    real_s: float

    @property
    def epochs_to_target(self) -> tuple[int | None, ...]:
        """Epochs to a config among the best 0.1 %, by seed; None if none was found."""
        return tuple(trace.epochs_to(self.problem.target) for trace in self.traces)

    @property
    def num_found(self) -> int:
        """Number of seeds that found a config among the best 0.1 %."""
        return sum(epochs is not None for epochs in self.epochs_to_target)

    @property
    def mean_epochs(self) -> float:
        """Geometric mean of the epochs to the target, or of the budget where none was found."""
        spent = [epochs or self.budget_epochs for epochs in self.epochs_to_target]
        return math.exp(statistics.fmean(math.log(epochs) for epochs in spent))

    @property
    def median_best_value(self) -> float | None:
        """Median over seeds of the best full run; None if a seed has none."""
        best = [trace.best_value for trace in self.traces]
        known = [value for value in best if value is not None]
        return statistics.median(known) if len(known) == len(best) else None

    @property
    def num_stalled(self) -> int:
        """Number of seeds for which Ray Tune would have hung."""
        return sum(trace.end is StopReason.STALLED for trace in self.traces)

    @property
    def speed(self) -> float:
        """Virtual seconds per real second."""
        return sum(trace.virtual_s for trace in self.traces) / self.real_s


def run_seeds(
    problem: Problem,
    make: Callable[[int], Pairing],
    *,
    num_seeds: int,
    num_workers: int,
    budget_epochs: int,
) -> MultiSeedRuns:
    """Simulate sweeps with the seeds 0, 1, and so on.

    ``make`` returns a searcher and a scheduler for a seed. ``budget_epochs`` are the iterations of
    all trials of a sweep together.
    """
    started = time.perf_counter()
    traces = []
    for seed in range(num_seeds):
        pairing = make(seed)
        traces.append(
            simulate(
                problem,
                pairing.searcher,
                pairing.scheduler,
                num_workers=num_workers,
                budget_epochs=budget_epochs,
                seed=seed,
            )
        )
    return MultiSeedRuns(problem, tuple(traces), budget_epochs, time.perf_counter() - started)
