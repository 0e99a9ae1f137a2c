"""What the running Tune controller knows about trials and does not tell searchers.

Tune says that a trial is over, not who ended it; it hands stop criteria to a searcher only if
``tune.run`` was given a ``config``; it keeps a trial's error to itself, the last result of a trial
that was stopped while it was paused, which trials it restored, and at which iterations its
scheduler compares trials. All of it stands in the controller, which is always among the callers of
a searcher's hooks. Where no controller is found, the answer is what Tune did tell.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher

from tune_tf.secrets import masked
from tune_tf.space import flat
from tune_tf.tune_internals.trial_ends import calling, calling_controller, is_own_end

_LONGEST = 500
_OVER = ("TERMINATED", "ERROR")


def own_end(trial_id: str, result: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Return whether a trial was to end at this result anyway, rather than by a scheduler.

    Args:
        trial_id: Tune's id of the trial.
        result: The result it was stopped at.
        told: The stop criteria that Tune told the searcher.
    """
    controller = calling_controller()
    if controller is not None and not _stops_trials(controller.scheduler_alg):
        return True
    return at_limit(trial_id, result, told)


def at_limit(trial_id: str, result: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Return whether a result has reached a limit of the trial; arguments as above."""
    controller = calling_controller()
    if controller is None:  # else what was told may be of an earlier run
        return any(name in result and result[name] >= limit for name, limit in told.items())
    trial = controller.get_trial(trial_id)
    return trial is not None and is_own_end(trial, result)


def error_text(trial_id: str) -> str:
    """Return the text of a failed trial's error; empty where it is not to be had."""
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    path = getattr(trial, "error_file", None)
    return masked(Path(path).read_text(errors="replace")) if path and Path(path).is_file() else ""


def last_line(text: str) -> str:
    """Return the last line that says something, which of an error's text is the message."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")


def trial_ids() -> set[str] | None:
    """Return the ids of all trials that Tune knows, or None outside of Tune."""
    controller = calling_controller()
    if controller is None:
        return None
    return {trial.trial_id for trial in controller.get_trials()}


def configs() -> dict[str, dict[str, Any]]:
    """Return the configs of all trials that Tune knows, flat, by id; empty outside of Tune."""
    controller = calling_controller()
    trials = controller.get_trials() if controller is not None else ()
    return {trial.trial_id: flat(trial.config) for trial in trials}


def ended() -> dict[str, bool]:
    """Return whether each trial failed that has ended, by id; empty outside of Tune."""
    controller = calling_controller()
    trials = controller.get_trials() if controller is not None else ()
    return {trial.trial_id: trial.status == "ERROR" for trial in trials if trial.is_finished()}


def last_result(trial_id: str) -> dict[str, Any]:
    """Return a trial's last result, groups joined by ``/``; empty where it is not to be had."""
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    return flat(trial.last_result or {}) if trial is not None else {}


def num_occupying() -> int | None:
    """Return how many trials run or are about to: neither over nor paused; None outside of Tune."""
    controller = calling_controller()
    if controller is None:
        return None
    return sum(trial.status not in (*_OVER, "PAUSED") for trial in controller.get_trials())


def max_concurrent(told: int | None) -> int | None:
    """Return how many trials may run at a time; None for any number.

    Args:
        told: What the searcher was told last, which may be of an earlier run.
    """
    searchers = _searchers()
    if not searchers:
        return told
    limiters = [each for each in searchers if isinstance(each, ConcurrencyLimiter)]
    return min((each.max_concurrent for each in limiters if not each.batch), default=None)


def is_in_batches() -> bool:
    """Return whether the limiter that is calling waits for all trials of a batch."""
    limiter = calling(ConcurrencyLimiter)
    return limiter is not None and limiter.batch


def is_repeated() -> bool:
    """Return whether each config runs as several trials, whose mean is told once all have ended."""
    return any(isinstance(each, Repeater) for each in _searchers())


def are_ends_held_back() -> bool:
    """Return whether a wrapper may have been told of ends that it tells the searcher later."""
    return is_repeated() or any(getattr(each, "batch", False) for each in _searchers())


def is_over() -> bool:
    """Return whether Tune is through with all trials, and asks for no more."""
    controller = calling_controller()
    return controller is not None and bool(controller.is_finished())


def all_over() -> bool:
    """Return whether all trials of the calling Tune are over: it does nothing but wait for one."""
    controller = calling_controller()
    return controller is not None and all(t.is_finished() for t in controller.get_trials())


def is_out_of_time() -> bool:
    """Return whether what Tune asks between its steps says that all trials are to be stopped."""
    stopper = getattr(calling_controller(), "_stopper", None)
    return stopper is not None and bool(stopper.stop_all())


def rungs() -> tuple[int, ...]:
    """Return the iterations at which the scheduler compares trials, ascending.

    Empty outside of Tune, and where the scheduler has none or does not tell.
    """
    controller = calling_controller()
    scheduler = getattr(controller, "scheduler_alg", None)
    declared = getattr(scheduler, "rungs", None)
    if declared is None:
        # Ray's own schedulers keep them to themselves; another release may hold them elsewhere.
        with suppress(AttributeError, TypeError, ValueError):
            declared = {int(rung) for rung in (*_ray_asha(scheduler), *_ray_hyperband(scheduler))}
    return tuple(sorted(declared or ()))


def _ray_asha(scheduler: Any) -> Iterator[float]:
    for bracket in getattr(scheduler, "_brackets", ()):
        yield from (milestone for milestone, _ in bracket._rungs)  # noqa: SLF001 - see rungs()


def _ray_hyperband(scheduler: Any) -> Iterator[int]:
    """Yield the milestones of each bracket: ``max_t * eta**-s``, then ``eta`` times it each time.

    As in Ray's ``hyperband.py``, whose brackets forget the ones that they have passed.
    """
    for halvings in range(getattr(scheduler, "_s_max_1", 0)):
        max_t, factor = scheduler._max_t_attr, scheduler._eta  # noqa: SLF001 - see rungs()
        rung = int(max_t * factor**-halvings)
        for _ in range(halvings + 1 if rung else 0):
            yield rung
            rung = int(min(rung * factor, max_t))


def _stops_trials(scheduler: Any) -> bool:
    """Return whether a scheduler ever stops a trial: Ray's default one does not."""
    fifo = sys.modules["ray.tune.schedulers.trial_scheduler"].FIFOScheduler
    return type(scheduler).on_trial_result is not fifo.on_trial_result


def _searchers() -> list[Searcher]:
    """Return the searchers of the calling Tune, from the outermost on; empty outside of Tune."""
    found: list[Searcher] = []
    around = getattr(calling_controller(), "search_alg", None)
    while (around := getattr(around, "searcher", None)) is not None:
        found.append(around)
    return found
