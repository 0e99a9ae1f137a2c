"""What the running Tune controller knows about trials and does not tell searchers.

The one place that looks behind Tune's searcher interface. Tune says that a trial is over, not who
ended it; it hands stop criteria to a searcher only if ``tune.run`` was given a ``config``; it keeps
a trial's error to itself, and which trials it restored. All of it stands in the controller, which
is always among the callers of a searcher's hooks. Where no controller is found, the answer is what
Tune did tell.
"""

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LONGEST = 500
_LONGEST = 500
_CONTROLLER_MODULE = "ray.tune.execution.tune_controller"


def own_end(trial_id: str, result: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Return whether a trial was to end at this result anyway, rather than by a scheduler.

    Args:
        trial_id: Tune's id of the trial.
        result: The result it was stopped at.
        told: The stop criteria that Tune told the searcher.
    """
    limits = dict(told)
    controller = _controller()
    if controller is not None:
        scheduler = controller.scheduler_alg
        if not _stops_trials(scheduler):
            return True
        trial = controller.get_trial(trial_id)
        limits.update(trial.stopping_criterion if trial is not None else {})
        # Ray's ASHA and HyperBand stop a trial that reached max_t as they stop a bad one.
        if isinstance(max_t := getattr(scheduler, "_max_t", None), int | float):
            limits.setdefault(getattr(scheduler, "_time_attr", ""), max_t)
    return any(name in result and result[name] >= limit for name, limit in limits.items())


def error_text(trial_id: str) -> str:
    """Return the text of a failed trial's error; empty where it is not to be had."""
    controller = _controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    path = getattr(trial, "error_file", None)
    return Path(path).read_text(errors="replace") if path and Path(path).is_file() else ""


def last_line(text: str) -> str:
    """Return the last line that says something, which of an error's text is the message."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")


def trial_ids() -> set[str] | None:
    """Return the ids of all trials that Tune knows, or None outside of Tune."""
    controller = _controller()
    if controller is None:
        return None
    return {trial.trial_id for trial in controller.get_trials()}


def _stops_trials(scheduler: Any) -> bool:
    """Return whether a scheduler ever stops a trial: Ray's default one does not."""
    fifo = sys.modules["ray.tune.schedulers.trial_scheduler"].FIFOScheduler
    return type(scheduler).on_trial_result is not fifo.on_trial_result


def _controller() -> Any | None:
    """Return the Tune controller that is calling, or None outside of Tune."""
    module = sys.modules.get(_CONTROLLER_MODULE)
    kind = getattr(module, "TuneController", None)
    frame = inspect.currentframe()
    while kind is not None and frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None
