"""Rungs and limits of Ray's schedulers, which keep them to themselves.

The names are those of Ray 2.60; if one is missing, a scheduler has no rungs and no limit.
"""

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from ray.tune.experiment import Trial


def scheduler_rungs(scheduler: Any) -> tuple[int, ...]:
    """Return the iterations at which a scheduler compares trials, ascending, as far as known."""
    rungs = getattr(scheduler, "rungs", None)
    return compared_at(scheduler) if rungs is None else tuple(sorted(rungs))


def compared_at(scheduler: Any) -> tuple[int, ...]:
    """Return the iterations at which one of Ray's own schedulers compares trials, ascending."""
    with suppress(AttributeError, TypeError, ValueError):
        if hasattr(scheduler, "_max_t_attr"):
            return milestones(scheduler._max_t_attr, scheduler._eta)  # noqa: SLF001 - see the module
        brackets = getattr(scheduler, "_brackets", ())
        return tuple(sorted({math.ceil(at) for bracket in brackets for at, _ in bracket._rungs}))  # noqa: SLF001
    return ()


def milestones(max_t: int, reduction_factor: float) -> tuple[int, ...]:
    """Return the milestones of all of Hyperband's brackets, ascending, rounded as Ray rounds them.

    Bracket ``s`` of ``round(log(max_t) / log(reduction_factor)) + 1`` starts at ``max_t *
    reduction_factor ** -s`` and has ``s`` halvings. Ray's own brackets forget those they passed.
    """
    iterations: set[int] = set()
    for halvings in range(int(np.round(np.log(max_t) / np.log(reduction_factor))) + 1):
        milestone = int(max_t * reduction_factor ** (-halvings))
        if milestone:
            iterations.add(milestone)
            for _ in range(halvings):
                milestone = int(min(milestone * reduction_factor, max_t))
                iterations.add(milestone)
    return tuple(sorted(iterations))


def has_reached_limit(scheduler: Any, trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a Ray scheduler, or the one that it wraps, has no more time for a trial.

    ``result`` is the trial's last result, flat.
    """
    while (base := getattr(scheduler, "_base_scheduler", None)) is not None:
        scheduler = base
    if not getattr(scheduler, "_stop_last_trials", True):
        return False
    limit = getattr(scheduler, "_max_t", None)
    if limit is None and hasattr(scheduler, "_max_t_attr"):
        limit = limit_in_hyperband(scheduler, trial)
    time = result.get(getattr(scheduler, "_time_attr", ""))
    return limit is not None and time is not None and bool(time >= limit)


def limit_in_hyperband(scheduler: Any, trial: Trial) -> int:
    """Return the last milestone of a trial's bracket, which rounding may put below ``max_t``."""
    max_t, factor = scheduler._max_t_attr, scheduler._eta  # noqa: SLF001 - see the module
    bracket, _ = scheduler._trial_info[trial]  # noqa: SLF001
    limit = bracket._cumul_r  # noqa: SLF001
    for _ in range(bracket._halves):  # noqa: SLF001
        limit = int(min(limit * factor, max_t))
    return int(limit)


def stops_trials(scheduler: Any) -> bool:
    """Return whether a scheduler ever stops a trial: Ray's default one does not."""
    fifo = sys.modules["ray.tune.schedulers.trial_scheduler"].FIFOScheduler
    return type(scheduler).on_trial_result is not fifo.on_trial_result
