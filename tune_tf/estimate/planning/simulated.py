"""Simulated sweeps that predict how many epochs a scheduler lets trials run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from tune_tf.config import SweepConfig
from tune_tf.config.scheduler_settings import ResourceChangingSettings
from tune_tf.estimate.planning.synthetic_curves import synthetic_problem
from tune_tf.schedulers import scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.simulation import Trace, simulate

MOST_TRIALS = 100
"""Most trials to simulate; larger sweeps are extrapolated in proportion to their trials."""

_FEWEST_A_SLOT = 4
_SLOW_SAMPLER = "gp"  # needs packages that may be missing, and seconds per proposal


@dataclass(frozen=True)
class SimulatedSweeps:
    """Simulations of one sweep with different seeds.

    Args:
        growth: Number of trials of the real sweep divided by that of a simulation.
        seconds: Function that returns the virtual seconds per iteration of a config.
    """

    traces: tuple[Trace, ...]
    growth: float
    sampler: str
    seconds: Callable[[Mapping[str, Any]], float]


def simulate_sweeps(
    config: SweepConfig,
    epoch_s: Callable[[Mapping[str, Any]], float],
    *,
    num_slots: int,
    num_seeds: int,
    mutations: Sequence[str] | None = None,
) -> SimulatedSweeps:
    """Simulate a sweep with its own scheduler on synthetic learning curves.

    Args:
        config: The sweep's settings.
        epoch_s: Function that returns the seconds per iteration of a flat config.
        num_slots: Number of concurrent trials.
        num_seeds: Number of simulations.
        mutations: Parameters that the scheduler changes; None for those of the settings.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings = config.scheduler
    if isinstance(settings, ResourceChangingSettings):
        settings = settings.base  # simulated trials have no resources to change
    given = settings.model_dump() | ({} if mutations is None else {"mutations": list(mutations)})
    sampler: str = config.searcher.sampler
    if sampler == _SLOW_SAMPLER or len(config.objectives) > 1:
        sampler = "random"
    wanted = config.budget.num_samples
    num_samples = min(wanted, max(MOST_TRIALS, _FEWEST_A_SLOT * num_slots))
    objective = config.leading_objective
    traces = []
    for seed in range(num_seeds):
        problem = synthetic_problem(
            config.space, objective, max_t=settings.max_t, seed=seed, cost_s=epoch_s
        )
        stops = scheduler(**given, objective=objective, space=config.space)
        proposes = OptunaSearcher(config.space, objective, sampler, seed=seed)
        traces.append(
            simulate(
                problem,
                proposes,
                stops,
                num_workers=num_slots,
                num_samples=num_samples,
                max_concurrent_trials=num_slots,
                seed=seed,
            )
        )
    return SimulatedSweeps(tuple(traces), wanted / num_samples, sampler, epoch_s)
