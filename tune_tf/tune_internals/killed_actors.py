"""Patch of Ray Tune 2.60 that handles killed actors as dead ones, once.

Tune knows only ``RayActorError`` as a death: the ``OutOfMemoryError`` of a call to an actor that
the memory monitor killed ends its loop with all trials. And it handles an actor twice that is
killed while being reset for another trial, which fails the trial, however many retries it has.
"""

import functools
from typing import Any

from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError

_METHOD = "_actor_task_failed"
_DEATHS = (OutOfMemoryError, NodeDiedError)


class KilledActorError(RayActorError):
    """Death of an actor that was killed from outside."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(None, f"{type(cause).__name__}: {cause}")
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the cause; Tune keeps a trial's error."""
        return type(self), (self.cause,)


def treat_killed_actors_as_dead() -> None:
    """Make Tune treat a killed actor as a dead one, in this process from now on.

    This wraps a method of Ray's actor manager, and does nothing if the method does not exist.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager

    original = getattr(RayActorManager, _METHOD, None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> Any:
        error = KilledActorError(exception) if isinstance(exception, _DEATHS) else exception
        if isinstance(error, RayActorError):
            _report_once(tracked_actor_task)
        return original(self, tracked_actor_task=tracked_actor_task, exception=error)

    setattr(RayActorManager, _METHOD, failed)


def _report_once(task: Any) -> None:
    """Suppress the error of a call if the actor was being reset: its own death is reported anyway.

    All attributes of the call are private; if one is missing, nothing is done.
    """
    actor = getattr(task, "_tracked_actor", None)
    controller = getattr(getattr(actor, "_on_error", None), "__self__", None)
    trial = getattr(controller, "_actor_to_trial", {}).get(actor)
    resetting: set[Any] = getattr(controller, "_resetting_trials", set())
    if trial in resetting:
        resetting.discard(trial)
        task._on_error = None  # noqa: SLF001
