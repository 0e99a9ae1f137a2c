"""Actors that are killed, told to Tune as dead, and once.

Ray raises ``OutOfMemoryError`` for a call to an actor that its memory monitor ended. That is no
``RayActorError``, the only death that Tune 2.60 knows: anything else ends its loop, and all other
trials with it.

An actor that is killed while it is made ready for another trial is told to Tune 2.60 twice: the
first time starts the trial again, the second one fails it, however often it may be started again.
If it were started again, Tune would wait for ever for the actor to be made ready.
"""

import functools
from typing import Any

from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError

_METHOD = "_actor_task_failed"
_DEATHS = (OutOfMemoryError, NodeDiedError)


class KilledActorError(RayActorError):
    """An actor was ended from outside."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(None, f"{type(cause).__name__}: {cause}")
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as it was made; Tune keeps a trial's error."""
        return type(self), (self.cause,)


def take_killed_for_dead() -> None:
    """Let Tune treat an actor that was killed as one that died, in this process from now on.

    Ray has no public way to do so: this wraps a method of its actor manager, and does nothing if
    that is not there.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager

    original = getattr(RayActorManager, _METHOD, None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> Any:
        known = KilledActorError(exception) if isinstance(exception, _DEATHS) else exception
        if isinstance(known, RayActorError):
            _tell_once(tracked_actor_task)
        return original(self, tracked_actor_task=tracked_actor_task, exception=known)

    setattr(RayActorManager, _METHOD, failed)


def _tell_once(task: Any) -> None:
    """Leave it to the actor to tell that it died, if it was being made ready for another trial.

    Args:
        task: What Ray's actor manager knows of a call to it. All of this is private to Ray; where
            it is not there, nothing is done.
    """
    actor = getattr(task, "_tracked_actor", None)
    controller = getattr(getattr(actor, "_on_error", None), "__self__", None)
    trial = getattr(controller, "_actor_to_trial", {}).get(actor)
    made_ready: set[Any] = getattr(controller, "_resetting_trials", set())
    if trial in made_ready:
        made_ready.discard(trial)
        task._on_error = None  # noqa: SLF001
