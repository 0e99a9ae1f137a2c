"""Pairings of a searcher and a scheduler, and simulated sweeps of one over several seeds."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optuna.samplers import BaseSampler
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.simulation.problem import Problem
from tune_tf.simulation.virtual_sweep import SweepEndReason, Trace, simulate


@dataclass(frozen=True)
class Pairing:
    """Searcher that proposes configs, and scheduler that stops trials."""

    searcher: Searcher
    scheduler: TrialScheduler


def make_pairing(
    problem: Problem,
    sampler: str | BaseSampler = "tpe",
    scheduler: str = "asha",
    *,
    seed: int | None = None,
    **settings: Any,
) -> Pairing:
    """Return tune_tf's searcher and scheduler for a problem, by name.

    The scheduler's ``max_t`` is that of the problem; ``settings`` are its further settings. A
    scheduler that draws has the seed, too, as in a sweep.

    Raises:
        InvalidSettingsError: A name is unknown, or settings are invalid.
    """
    space, objective = problem.space, problem.objective
    if scheduler == "freeze_thaw":
        settings.setdefault("seed", seed)
    return Pairing(
        OptunaSearcher(space, objective, sampler, seed=seed),
        make_scheduler(scheduler, objective, space=space, max_t=problem.max_t, **settings),
    )


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
        return statistics.geometric_mean(
            epochs or self.budget_epochs for epochs in self.epochs_to_target
        )

    @property
    def median_best_value(self) -> float | None:
        """Median over seeds of the best full run; None if a seed has none."""
        values = [trace.best_value for trace in self.traces if trace.best_value is not None]
        return statistics.median(values) if len(values) == len(self.traces) else None

    @property
    def num_stalled(self) -> int:
        """Number of seeds for which Ray Tune would have hung."""
        return sum(trace.end is SweepEndReason.STALLED for trace in self.traces)

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
    """Simulate sweeps with the seeds 0, 1, and so on, and a new pairing for each.

    ``budget_epochs`` are the iterations of all trials of a sweep together.
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
