"""Queries to the running Tune controller for facts that Tune does not pass to searchers.

Tune reports that a trial has ended, but not who ended it. It passes stop criteria to a searcher
only if ``tune.run`` has a ``config``, and does not pass a trial's error, the last result of a trial
stopped while paused, which trials were restored, or the scheduler's rungs. The controller, which is
always among the callers of a searcher's hooks, knows all of it. Where no controller is found, the
answer is what Tune did pass.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher

from tune_tf.secrets import mask_secrets
from tune_tf.space import flat
from tune_tf.tune_internals.trial_ends import calling, calling_controller, is_own_end

_LONGEST = 500
_OVER = ("TERMINATED", "ERROR")


def reaches_own_end(
    trial_id: str, result: Mapping[str, Any], stop_criteria: Mapping[str, Any]
) -> bool:
    """Return whether a trial was to end at this result anyway, rather than by a scheduler.

    Args:
        trial_id: Tune's id of the trial.
        result: The result at which it was stopped.
        stop_criteria: The stop criteria that Tune passed to the searcher.
    """
    controller = calling_controller()
    if controller is not None and not _stops_trials(controller.scheduler_alg):
        return True
    return at_limit(trial_id, result, stop_criteria)


def at_limit(trial_id: str, result: Mapping[str, Any], stop_criteria: Mapping[str, Any]) -> bool:
    """Return whether a result has reached a limit of the trial.

    Args:
        trial_id: Tune's id of the trial.
        result: The result.
        stop_criteria: The stop criteria that Tune passed to the searcher.
    """
    controller = calling_controller()
    if controller is None:  # else the criteria may be from an earlier run
        return any(
            name in result and result[name] >= limit for name, limit in stop_criteria.items()
        )
    trial = controller.get_trial(trial_id)
    return trial is not None and is_own_end(trial, result)


def error_text(trial_id: str) -> str:
    """Return the text of a failed trial's error; empty if it is not available."""
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    path = getattr(trial, "error_file", None)
    return (
        mask_secrets(Path(path).read_text(errors="replace"))
        if path and Path(path).is_file()
        else ""
    )


def last_line(text: str) -> str:
    """Return the last non-empty line, which in an error's text is the message."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")


def trial_ids() -> set[str] | None:
    """Return the ids of all trials that Tune knows; None outside of Tune."""
    controller = calling_controller()
    if controller is None:
        return None
    return {trial.trial_id for trial in controller.get_trials()}


def configs() -> dict[str, dict[str, Any]]:
    """Return the configs of all trials that Tune knows, flat, by id; empty outside of Tune."""
    controller = calling_controller()
    trials = controller.get_trials() if controller is not None else ()
    return {trial.trial_id: flat(trial.config) for trial in trials}


def finished_trials() -> dict[str, bool]:
    """Return whether each finished trial has failed, by id; empty outside of Tune."""
    controller = calling_controller()
    trials = controller.get_trials() if controller is not None else ()
    return {trial.trial_id: trial.status == "ERROR" for trial in trials if trial.is_finished()}


def last_result(trial_id: str) -> dict[str, Any]:
    """Return a trial's last result, groups joined by ``/``; empty if it is not available."""
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    return flat(trial.last_result or {}) if trial is not None else {}


def num_active() -> int | None:
    """Return the number of trials neither finished nor paused; None outside of Tune."""
    controller = calling_controller()
    if controller is None:
        return None
    return sum(trial.status not in (*_OVER, "PAUSED") for trial in controller.get_trials())


def max_concurrent(default: int | None) -> int | None:
    """Return the maximum number of concurrent trials; None for no limit.

    Args:
        default: The limit set on the searcher, which may be from an earlier run.
    """
    searchers = _searchers()
    if not searchers:
        return default
    limiters = [each for each in searchers if isinstance(each, ConcurrencyLimiter)]
    return min((each.max_concurrent for each in limiters if not each.batch), default=None)


def is_batched() -> bool:
    """Return whether the calling limiter waits for all trials of a batch."""
    limiter = calling(ConcurrencyLimiter)
    return limiter is not None and limiter.batch


def is_repeated() -> bool:
    """Return whether each config runs as several trials, whose mean is reported at their end."""
    return any(isinstance(each, Repeater) for each in _searchers())


def delays_completions() -> bool:
    """Return whether a wrapper may withhold completed trials from the searcher for a while."""
    return is_repeated() or any(getattr(each, "batch", False) for each in _searchers())


def is_experiment_finished() -> bool:
    """Return whether Tune is done with all trials and asks for no more."""
    controller = calling_controller()
    return controller is not None and bool(controller.is_finished())


def all_trials_finished() -> bool:
    """Return whether all trials are finished, so that Tune only waits for a new one."""
    controller = calling_controller()
    return controller is not None and all(t.is_finished() for t in controller.get_trials())


def is_out_of_time() -> bool:
    """Return whether Tune's stopper ends the whole experiment."""
    stopper = getattr(calling_controller(), "_stopper", None)
    return stopper is not None and bool(stopper.stop_all())


def rungs() -> tuple[int, ...]:
    """Return the iterations at which the scheduler compares trials, ascending.

    Empty outside of Tune, and if the scheduler has none or does not expose them.
    """
    controller = calling_controller()
    scheduler = getattr(controller, "scheduler_alg", None)
    declared = getattr(scheduler, "rungs", None)
    if declared is None:
        # Private in Ray's own schedulers; another release may keep them elsewhere.
        with suppress(AttributeError, TypeError, ValueError):
            declared = {int(rung) for rung in (*_ray_asha(scheduler), *_ray_hyperband(scheduler))}
    return tuple(sorted(declared or ()))


def _ray_asha(scheduler: Any) -> Iterator[float]:
    for bracket in getattr(scheduler, "_brackets", ()):
        yield from (milestone for milestone, _ in bracket._rungs)  # noqa: SLF001 - see rungs()


def _ray_hyperband(scheduler: Any) -> Iterator[int]:
    """Yield the milestones of each bracket: ``max_t * eta**-s``, then times ``eta`` each.

    As in Ray's ``hyperband.py``, whose brackets forget the milestones they have passed.
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
    """Return the searchers of the calling Tune, outermost first; empty outside of Tune."""
    found: list[Searcher] = []
    around = getattr(calling_controller(), "search_alg", None)
    while (around := getattr(around, "searcher", None)) is not None:
        found.append(around)
    return found
