"""Queries behind Ray Tune's public interface: who ended a trial, and related facts.

Tune tells a callback that a trial is over, but not whether its stopper, its stop criteria or its
scheduler ended it. The controller, which is always among the callers of a hook, knows. The names
are those of Ray 2.60; if one is missing, the answer is what Tune does tell.
"""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial

_CONTROLLER_MODULE = "ray.tune.execution.tune_controller"
_NO_METRIC = "_metric"  # what Tune calls the metric of a run that has none


class ObservedStopper:
    """Stopper that records which trials finish by themselves or by the user's stopper.

    Tune asks its stopper about each result before it marks the result of a trial that is to end. In
    Tune's snapshots the user's stopper takes its place.

    Args:
        stopper: The stopper of ``tune.run(stop=...)``.
    """

    def __init__(self, stopper: Any) -> None:
        self._stopper = stopper
        self._ended: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return the user's stopper's decision on a result."""
        done = bool(result.get("done"))
        stops = bool(self._stopper(trial_id, result))
        if done or stops:
            self._ended.add(trial_id)
        else:
            self._ended.discard(trial_id)
        return stops

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the user's stopper."""
        return getattr(self._stopper, name)

    def __reduce__(self) -> tuple[Callable[[tuple[Any]], Any], tuple[tuple[Any]]]:
        """Pickle the user's stopper alone."""
        return operator.itemgetter(0), ((self._stopper,),)

    def has_ended(self, trial_id: str) -> bool:
        """Return whether the trial itself or the stopper ended the trial at its last result."""
        return trial_id in self._ended


def calling_controller() -> Any | None:
    """Return the calling Tune controller; None outside of Tune."""
    return calling(getattr(sys.modules.get(_CONTROLLER_MODULE), "TuneController", None))


def asks_for_more() -> bool:
    """Return whether Tune has not asked for all trials yet, as when it is interrupted."""
    search = getattr(calling_controller(), "search_alg", None)
    return search is not None and not search.is_finished()


def calling(kind: type | None) -> Any | None:
    """Return the nearest instance of a class in the call stack."""
    frame = inspect.currentframe()
    while kind is not None and frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None


def observe_stops() -> None:
    """Make the calling controller record which trials its scheduler does not end."""
    controller = calling_controller()
    stopper = getattr(controller, "_stopper", None)
    if controller is not None and stopper is not None and not isinstance(stopper, ObservedStopper):
        controller._stopper = ObservedStopper(stopper)  # noqa: SLF001 - see the module


def is_own_end(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a trial that ends with a result ran as far as intended.

    It does if its code reports ``done``, at the criteria and by the stopper of
    ``tune.run(stop=...)``, and at the scheduler's own limit.

    Args:
        trial: The trial.
        result: Its last result, flat.
    """
    controller = calling_controller()
    stopper = getattr(controller, "_stopper", None)
    if isinstance(stopper, ObservedStopper) and stopper.has_ended(trial.trial_id):
        return True
    if trial.should_stop({**result, "done": False}):
        return True
    return has_reached_limit(getattr(controller, "scheduler_alg", None), trial, result)


def has_reached_limit(scheduler: Any, trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a Ray scheduler has no more time to give to a trial.

    Args:
        scheduler: The scheduler; it may wrap another one.
        trial: The trial.
        result: Its last result, flat.
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
    """Return the last milestone of a trial's bracket, which rounding may put below ``max_t``.

    Args:
        scheduler: Ray's ``HyperBandScheduler`` or a subclass.
        trial: A trial that it knows.
    """
    max_t, factor = scheduler._max_t_attr, scheduler._eta  # noqa: SLF001 - see the module
    bracket, _ = scheduler._trial_info[trial]  # noqa: SLF001
    limit = bracket._cumul_r  # noqa: SLF001
    for _ in range(bracket._halves):  # noqa: SLF001
        limit = int(min(limit * factor, max_t))
    return int(limit)


def compared_metrics() -> frozenset[str]:
    """Return the metrics by which the calling Tune compares trials; empty outside of Tune."""
    controller = calling_controller()
    metrics = [
        getattr(controller, "_metric", None),
        getattr(getattr(controller, "scheduler_alg", None), "metric", None),
        getattr(getattr(controller, "search_alg", None), "metric", None),
    ]
    return frozenset(name for name in metrics if isinstance(name, str) and name != _NO_METRIC)


def run_id_of(trial_id: str) -> str | None:
    """Return a trial's MLflow run id; None if no callback of the calling Tune has one.

    Args:
        trial_id: Tune's id of a trial that is about to end.
    """
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    callbacks = getattr(getattr(controller, "_callbacks", None), "_callbacks", ())
    asked = (getattr(callback, "await_run_id", None) for callback in callbacks)
    found = (ask(trial) for ask in asked if ask is not None and trial is not None)
    return next(found, None)
