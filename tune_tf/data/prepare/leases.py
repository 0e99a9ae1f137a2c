"""Leases on cached contents, kept alive by heartbeats."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar


class ActorHeartbeat:
    """Periodic heartbeat from this process to an actor that caches data.

    An actor cannot monitor processes of other nodes, and holding an object or handle of them would
    prevent their clean exit.
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
        """Return this process's heartbeat to an actor, starting it if needed.

        A process has one heartbeat per kind of actor, to the latest actor of that kind.
        """
        current = cls._of_process.get(kind)
        if current is None or not current.goes_to(actor):
            if current is not None:
                current.stop()
            current = cls._of_process[kind] = cls(actor, every_s)
        return current

    def goes_to(self, actor: Any) -> bool:
        """Return whether this beats to an actor under the current connection of the process."""
        return bool(self._actor == actor) and self._is_connected()

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._stopped.set()

    def _beat(self) -> None:
        import ray

        while not self._stopped.wait(self._every_s) and self._is_connected():
            try:
                self._actor.hear.remote(self.asker)
            except ray.exceptions.RayError:  # disconnected since the check
                return

    def _is_connected(self) -> bool:
        import ray

        # The worker id changes when the process reconnects.
        return ray.is_initialized() and bool(
            ray.get_runtime_context().get_worker_id() == self.asker
        )


BEATS = 10
"""Heartbeats per lease duration."""


class Leases:
    """Users of each cached content and the times of their last heartbeats.

    A user without a heartbeat for ``keep_s`` seconds has expired.
    """

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._wanted: dict[str, set[str]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no user is alive."""
        return not self._heard

    def want(self, key: str, asker: str) -> None:
        """Lease a content to a process."""
        self.hear(asker)
        self._wanted.setdefault(key, set()).add(asker)

    def hear(self, asker: str) -> None:
        """Record a heartbeat of a process."""
        self._heard[asker] = self._clock()

    def lapsed(self) -> list[str]:
        """Drop expired users, and return and drop the contents without users."""
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
    """Drop lapsed contents, and kill the current actor once no user is alive.

    This leaves nothing on a cluster after a driver was killed.
    """
    import ray

    while True:
        await asyncio.sleep(every_s)
        for key in leases.lapsed():
            forget(key)
        if leases.is_idle:
            ray.kill(ray.get_runtime_context().current_actor)
