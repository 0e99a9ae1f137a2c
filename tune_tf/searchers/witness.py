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

from tune_tf.secrets import masked
from tune_tf.space import flat
from tune_tf.tune_internals import calling_controller, is_own_end

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
    if any(name in result and result[name] >= limit for name, limit in told.items()):
        return True
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
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
