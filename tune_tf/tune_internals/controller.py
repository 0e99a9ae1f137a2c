"""Queries to the running Tune controller for facts that Tune does not pass on.

Tune hands it to schedulers only; for searchers and callbacks it is found among the callers of their
hooks. The names are those of Ray 2.60; if one is missing or there is no controller, the answer is
what Tune did pass.
"""

import inspect
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.search import Repeater, Searcher

from tune_tf.space import flatten
from tune_tf.tune_internals.scheduler_limits import has_reached_limit, scheduler_rungs, stops_trials
from tune_tf.tune_internals.trial_state import trial_error

_CONTROLLER_MODULE = "ray.tune.execution.tune_controller"
_NO_METRIC = "_metric"  # what Tune calls the metric of a run that has none

_current: ContextVar[Any] = ContextVar("controller", default=None)


@contextmanager
def use_controller(controller: Any) -> Iterator[None]:
    """Answer from this controller within the context, without a search among the callers."""
    token = _current.set(controller)
    try:
        yield
    finally:
        _current.reset(token)


def calling_controller() -> Any | None:
    """Return the calling Tune controller; None outside of Tune."""
    kind = getattr(sys.modules.get(_CONTROLLER_MODULE), "TuneController", None)
    return _current.get() or _find_caller(kind)


def _find_caller(kind: type | None) -> Any | None:
    """Return the nearest instance of a class in the call stack."""
    frame = inspect.currentframe()
    while kind is not None and frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kind):
            return caller
        frame = frame.f_back
    return None


class ControllerProxy:
    """Tune's controller with some of its attributes replaced.

    Some of Ray's schedulers refuse or fail on attributes of the controller that they do not need.
    """

    def __init__(self, controller: Any, **attributes: Any) -> None:
        self._controller = controller
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        """Return a replacement, or the controller's own attribute."""
        attributes = self.__dict__["_attributes"]
        return attributes[name] if name in attributes else getattr(self._controller, name)


class ObservedStopper:
    """Stopper that records which trials finish by themselves or by the user's stopper.

    It wraps that of ``tune.run(stop=...)``, which Tune asks about each result before it marks the
    result of a trial that is to end. In Tune's snapshots the user's stopper takes its place.
    """

    def __init__(self, stopper: Any) -> None:
        self._stopper = stopper
        self._ended: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return the user's stopper's decision on a result."""
        is_done = bool(result.get("done"))
        stops = bool(self._stopper(trial_id, result))
        if is_done or stops:
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


def observe_stops() -> None:
    """Make the calling controller record which trials its scheduler does not end."""
    controller: Any = calling_controller()
    stopper = getattr(controller, "_stopper", None)
    if stopper is not None and not isinstance(stopper, ObservedStopper):
        controller._stopper = ObservedStopper(stopper)  # noqa: SLF001 - see the module


def is_complete(trial: Trial, result: Mapping[str, Any]) -> bool:
    """Return whether a trial that ends with a result, flat, ran as far as intended.

    It does if its code reports ``done``, at the criteria and by the stopper of
    ``tune.run(stop=...)``, and at the scheduler's own limit.
    """
    controller = calling_controller()
    stopper = getattr(controller, "_stopper", None)
    if isinstance(stopper, ObservedStopper) and stopper.has_ended(trial.trial_id):
        return True
    if trial.should_stop({**result, "done": False}):
        return True
    return has_reached_limit(getattr(controller, "scheduler_alg", None), trial, result)


def would_complete(
    trial_id: str, result: Mapping[str, Any], stop_criteria: Mapping[str, Any]
) -> bool:
    """Return whether a trial was to end at this result anyway, rather than by a scheduler.

    The stop criteria are those that Tune passed to the searcher.
    """
    controller = calling_controller()
    if controller is not None and not stops_trials(controller.scheduler_alg):
        return True
    return is_complete_by_id(trial_id, result, stop_criteria)


def is_complete_by_id(
    trial_id: str, result: Mapping[str, Any], stop_criteria: Mapping[str, Any]
) -> bool:
    """Return whether a result has reached a limit of the trial."""
    if calling_controller() is None:  # else the criteria may be from an earlier run
        return any(result.get(name, -inf) >= limit for name, limit in stop_criteria.items())
    trial = _find_trial(trial_id)
    return trial is not None and is_complete(trial, result)


def compared_metrics() -> frozenset[str]:
    """Return the metrics by which the calling Tune compares trials; empty outside of Tune."""
    controller = calling_controller()
    metrics = [
        getattr(controller, "_metric", None),
        getattr(getattr(controller, "scheduler_alg", None), "metric", None),
        getattr(getattr(controller, "search_alg", None), "metric", None),
    ]
    return frozenset(name for name in metrics if isinstance(name, str) and name != _NO_METRIC)


def error_text(trial_id: str) -> str:
    """Return the text of a failed trial's error; empty if it is not available."""
    trial: Any = _find_trial(trial_id)
    return trial_error(trial) if getattr(trial, "error_file", None) else ""


def finished_trials() -> dict[str, bool]:
    """Return whether each finished trial has failed, by id; empty outside of Tune."""
    return {each.trial_id: each.status == Trial.ERROR for each in _trials() if each.is_finished()}


def last_result(trial_id: str) -> dict[str, Any]:
    """Return a trial's last result, groups joined by ``/``; empty if it is not available."""
    trial = _find_trial(trial_id)
    return flatten(trial.last_result or {}) if trial is not None else {}


def num_active() -> int | None:
    """Return the number of trials neither finished nor paused; None outside of Tune."""
    if calling_controller() is None:
        return None
    inactive = (Trial.TERMINATED, Trial.ERROR, Trial.PAUSED)
    return sum(trial.status not in inactive for trial in _live_trials())


def is_repeated() -> bool:
    """Return whether each config runs as several trials, whose mean is reported at their end."""
    return any(isinstance(each, Repeater) for each in _searchers())


def asks_for_more() -> bool:
    """Return whether Tune has not asked for all trials yet, as when it is interrupted."""
    search = getattr(calling_controller(), "search_alg", None)
    return search is not None and not search.is_finished()


def is_experiment_finished() -> bool:
    """Return whether Tune is done with all trials and asks for no more."""
    controller = calling_controller()
    return controller is not None and bool(controller.is_finished())


def rungs() -> tuple[int, ...]:
    """Return the iterations at which the scheduler compares trials; empty outside of Tune."""
    return scheduler_rungs(getattr(calling_controller(), "scheduler_alg", None))


def proposal() -> dict[str, Any] | None:
    """Return the flat config that the scheduler proposes for a new trial; None if it has none."""
    controller = calling_controller()
    scheduler = getattr(controller, "scheduler_alg", None)
    propose = getattr(scheduler, "propose", None)
    config: dict[str, Any] | None = propose(controller) if propose else None
    return config


def _trials() -> list[Trial]:
    controller = calling_controller()
    return list(controller.get_trials()) if controller is not None else []


def _live_trials() -> Collection[Trial]:
    """Return the trials that are not finished, perhaps with some that are; not all of thousands."""
    live: Callable[[], Collection[Trial]] = getattr(
        calling_controller(), "get_live_trials", _trials
    )
    return live()


def _find_trial(trial_id: str) -> Trial | None:
    controller = calling_controller()
    if controller is None:
        return None
    live = (trial for trial in _live_trials() if trial.trial_id == trial_id)
    return next(live, None) or controller.get_trial(trial_id)


def _searchers() -> list[Searcher]:
    """Return the searchers of the calling Tune, outermost first; empty outside of Tune."""
    searchers: list[Searcher] = []
    wrapper = getattr(calling_controller(), "search_alg", None)
    while (wrapper := getattr(wrapper, "searcher", None)) is not None:
        searchers.append(wrapper)
    return searchers
