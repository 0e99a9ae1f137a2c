"""Leases on cached contents, kept alive by heartbeats."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar


class ActorHeartbeat:
    """Periodic heartbeat from this process to an actor that caches data.

    An actor cannot see the processes of other nodes, and whatever it held of them (an object, a
    handle) would keep them from ending in good order.

    Args:
        actor: Handle of the actor.
        every_s: Seconds between two signs.
    """

    _of_process: ClassVar[dict[str, "ActorHeartbeat"]] = {}  # by kind of actor

    def __init__(self, actor: Any, every_s: float) -> None:
        import ray

        self._actor = actor
        self.asker: str = ray.get_runtime_context().get_worker_id()
        self._every_s = every_s
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="tune_tf heartbeat", daemon=True).start()

    @classmethod
    def to(cls, actor: Any, every_s: float, kind: str) -> "ActorHeartbeat":
        """Return the one of this process, which starts where it does not yet go to that actor.

        Args:
            actor: Handle of the actor.
            every_s: Seconds between two signs.
            kind: Of the actor; a process has one heartbeat for each kind, to the latest of it.
        """
        current = cls._of_process.get(kind)
        if current is None or not current.goes_to(actor):
            if current is not None:
                current.stop()
            current = cls._of_process[kind] = cls(actor, every_s)
        return current

    def goes_to(self, actor: Any) -> bool:
        """Whether an actor hears it from this process as it is connected now."""
        return bool(self._actor == actor) and self._is_connected()

    def stop(self) -> None:
        """Give no more signs."""
        self._stopped.set()

    def _beat(self) -> None:
        import ray

        while not self._stopped.wait(self._every_s) and self._is_connected():
            try:
                self._actor.hear.remote(self.asker)
            except ray.exceptions.RayError:  # disconnected at this very moment
                return

    def _is_connected(self) -> bool:
        import ray

        # The name of this process changes when it connects anew.
        return ray.is_initialized() and bool(
            ray.get_runtime_context().get_worker_id() == self.asker
        )


BEATS = 10
"""Signs of life in the time that a content outlives the last one."""


class Leases:
    """Users of each content and the time of their last heartbeat.

    Args:
        keep_s: How long a content is kept after the last sign of all who want it.
        clock: Returns seconds that only grow.
    """

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._wanted: dict[str, set[str]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nobody is there."""
        return not self._heard

    def want(self, key: str, asker: str) -> None:
        """Note that somebody wants a content."""
        self.hear(asker)
        self._wanted.setdefault(key, set()).add(asker)

    def hear(self, asker: str) -> None:
        """Note that somebody is there."""
        self._heard[asker] = self._clock()

    def lapsed(self) -> list[str]:
        """Forget who was not heard of for long; return the contents that nobody wants any more."""
        oldest = self._clock() - self._keep_s
        self._heard = {asker: at for asker, at in self._heard.items() if at >= oldest}
        for askers in self._wanted.values():
            askers.intersection_update(self._heard)
        lapsed = [key for key, askers in self._wanted.items() if not askers]
        for key in lapsed:
            del self._wanted[key]
        return lapsed


async def end_when_unwanted(
    leases: Leases, every_s: float, forget: Callable[[str], object]
) -> None:
    """Give up lapsed contents, and end the actor that runs this once nobody is there.

    So that nothing is left on a cluster after a driver was killed.

    Args:
        leases: On what the actor keeps.
        every_s: Seconds between two looks.
        forget: Gives up a content.
    """
    import ray

    while True:
        await asyncio.sleep(every_s)
        for key in leases.lapsed():
            forget(key)
        if leases.is_idle:
            ray.kill(ray.get_runtime_context().current_actor)
