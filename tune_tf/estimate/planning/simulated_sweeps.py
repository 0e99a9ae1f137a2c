"""Longest course of a sweep: every trial runs in full, in the order of proposal."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.objective import Objective
from tune_tf.space import flatten

_MAX_TRIALS = 100  # larger sweeps are extrapolated in proportion to their trials
_MIN_TRIALS_PER_SLOT = 4


class PlannedResult(NamedTuple):
    """Result of a trial, by its number; times are seconds since the start of the sweep."""

    time_s: float
    trial: int
    iteration: int
    value: float


@dataclass(frozen=True)
class PlannedTrial:
    """Trial of a planned sweep."""

    number: int
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Trace:
    """Course of a sweep: results in order of time, trials in order of proposal."""

    objective: Objective
    max_t: int
    events: tuple[PlannedResult, ...]
    trials: tuple[PlannedTrial, ...]


@dataclass(frozen=True)
class SimulatedSweeps:
    """Courses of a sweep, which has ``growth`` times as many trials, with several seeds."""

    traces: tuple[Trace, ...]
    growth: float


def simulate_sweeps(
    config: SweepConfig,
    epoch_s: Callable[[Mapping[str, Any]], float],
    *,
    num_slots: int,
    num_seeds: int,
    mutations: Sequence[str] | None = None,
) -> SimulatedSweeps:
    """Return the courses of a sweep of random configs that all run in full.

    ``epoch_s`` returns the seconds per iteration of a flat config.
    """
    num_samples = min(config.budget.num_samples, max(_MAX_TRIALS, _MIN_TRIALS_PER_SLOT * num_slots))
    traces = tuple(
        _full_runs(config, epoch_s, num_samples, num_slots, np.random.default_rng(seed))
        for seed in range(num_seeds)
    )
    return SimulatedSweeps(traces, config.budget.num_samples / num_samples)


def _full_runs(
    config: SweepConfig,
    epoch_s: Callable[[Mapping[str, Any]], float],
    num_samples: int,
    num_slots: int,
    rng: np.random.Generator,
) -> Trace:
    max_t, free_s = config.scheduler.max_t, [0.0] * num_slots
    trials = tuple(PlannedTrial(number, config.space.sample(rng)) for number in range(num_samples))
    events: list[PlannedResult] = []
    for trial in trials:
        slot = min(range(num_slots), key=free_s.__getitem__)
        seconds = epoch_s(flatten(trial.config, config.space.parameters))
        ends = itertools.accumulate([seconds] * max_t, initial=free_s[slot])
        events += [
            PlannedResult(end_s, trial.number, iteration, 1 / iteration)
            for iteration, end_s in enumerate(ends)
            if iteration
        ]
        free_s[slot] = events[-1].time_s
    return Trace(config.leading_objective, max_t, tuple(sorted(events)), trials)
