"""Actors that Ray's memory monitor ends, told to Tune as dead.

Ray raises ``OutOfMemoryError`` for a call to such an actor. That is no ``RayActorError``, the only
death that Tune 2.60 knows: anything else ends its loop, and all other trials with it.
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
        return original(self, tracked_actor_task=tracked_actor_task, exception=known)

    setattr(RayActorManager, _METHOD, failed)
