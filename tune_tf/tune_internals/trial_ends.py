"""What stands behind Ray Tune's public interface: who ended a trial, and what else is known of it.

Tune tells a callback that a trial is over, and keeps to itself whether its stopper, its stop
criteria or its scheduler ended it. The controller, which is always among the callers of a hook,
knows. The names used are those of Ray 2.60; where one is missing, the answer is what Tune does
tell.
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
    """Tune's stopper, which notes the trials that end by themselves or by the user's stopper.

    Tune asks its stopper first about each result, before it marks the result of a trial that is to
    end. A snapshot of Tune's holds the user's stopper in its place.

    Args:
        stopper: The stopper of ``tune.run(stop=...)``.
    """

    def __init__(self, stopper: Any) -> None:
        self._stopper = stopper
        self._ended: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return what the stopper says of a trial's result."""
        done = bool(result.get("done"))
        stops = bool(self._stopper(trial_id, result))
        if done or stops:
            self._ended.add(trial_id)
        else:
            self._ended.discard(trial_id)
        return stops

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stopper's."""
        return getattr(self._stopper, name)

    def __reduce__(self) -> tuple[Callable[[tuple[Any]], Any], tuple[tuple[Any]]]:
        """Pickle the stopper alone."""
        return operator.itemgetter(0), ((self._stopper,),)

    def has_ended(self, trial_id: str) -> bool:
        """Return whether a trial's last result was its last by its own doing or the stopper's."""
        return trial_id in self._ended


def calling_controller() -> Any | None:
    """Return the Tune controller that is calling, or None outside of Tune."""
    return calling(getattr(sys.modules.get(_CONTROLLER_MODULE), "TuneController", None))


def asks_for_more() -> bool:
    """Return whether the calling Tune has not asked for all trials, as when it is interrupted."""
    search = getattr(calling_controller(), "search_alg", None)
    return search is not None and not search.is_finished()


def calling(kind: type | None) -> Any | None:
    """Return the nearest object of a class among those whose methods are being called."""
    frame = inspect.currentframe()
    while kind is not None and frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None


def observe_stops() -> None:
    """Have the calling controller note from now on which trials its scheduler does not end."""
    controller = calling_controller()
    stopper = getattr(controller, "_stopper", None)
    if controller is not None and stopper is not None and not isinstance(stopper, ObservedStopper):
        controller._stopper = ObservedStopper(stopper)  # noqa: SLF001 - see the module


def is_own_end(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a trial that ends with a result ran as far as it was to.

    It does so where its code says that it is done, at the criteria and by the stopper of
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
    """Return whether a scheduler of Ray's has no more time to give to a trial.

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
    """Return the last milestone of a trial's bracket, which may lie below ``max_t`` by rounding.

    Args:
        scheduler: Ray's ``HyperBandScheduler`` or one derived from it.
        trial: A trial that it knows.
    """
    max_t, factor = scheduler._max_t_attr, scheduler._eta  # noqa: SLF001 - see the module
    bracket, _ = scheduler._trial_info[trial]  # noqa: SLF001
    limit = bracket._cumul_r  # noqa: SLF001
    for _ in range(bracket._halves):  # noqa: SLF001
        limit = int(min(limit * factor, max_t))
    return int(limit)


def compared_metrics() -> frozenset[str]:
    """Return the metrics that the calling Tune compares trials by; empty outside of Tune."""
    controller = calling_controller()
    told = [
        getattr(controller, "_metric", None),
        getattr(getattr(controller, "scheduler_alg", None), "metric", None),
        getattr(getattr(controller, "search_alg", None), "metric", None),
    ]
    return frozenset(name for name in told if isinstance(name, str) and name != _NO_METRIC)


def run_id_of(trial_id: str) -> str | None:
    """Return MLflow's id of a trial's run; None where no callback of the calling Tune has one.

    Args:
        trial_id: Tune's id of a trial that is about to end.
    """
    controller = calling_controller()
    trial = controller.get_trial(trial_id) if controller is not None else None
    callbacks = getattr(getattr(controller, "_callbacks", None), "_callbacks", ())
    asked = (getattr(callback, "await_run_id", None) for callback in callbacks)
    found = (ask(trial) for ask in asked if ask is not None and trial is not None)
    return next(found, None)
