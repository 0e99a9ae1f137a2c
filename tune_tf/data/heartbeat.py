"""The sign of life of a process that asked for data."""

import threading
from typing import Any, ClassVar


class Heartbeat:
    """Tells an actor that keeps data at times that this process is there.

    An actor cannot see the processes of other nodes, and whatever it held of them (an object, a
    handle) would keep them from ending in good order.

    Args:
        keeper: Its handle.
        every_s: Seconds between two signs.
    """

    _of_process: ClassVar[dict[str, "Heartbeat"]] = {}  # by kind of actor

    def __init__(self, keeper: Any, every_s: float) -> None:
        import ray

        self._keeper = keeper
        self.asker: str = ray.get_runtime_context().get_worker_id()
        self._every_s = every_s
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="tune_tf heartbeat", daemon=True).start()

    @classmethod
    def to(cls, keeper: Any, every_s: float, kind: str) -> "Heartbeat":
        """Return the one of this process, which starts where it does not yet go to that actor.

        Args:
            keeper: The actor's handle.
            every_s: Seconds between two signs.
            kind: Of the actor; a process has one heartbeat for each kind, to the latest of it.
        """
        current = cls._of_process.get(kind)
        if current is None or not current.goes_to(keeper):
            if current is not None:
                current.stop()
            current = cls._of_process[kind] = cls(keeper, every_s)
        return current

    def goes_to(self, keeper: Any) -> bool:
        """Whether an actor hears it from this process as it is connected now."""
        return bool(self._keeper == keeper) and self._is_connected()

    def stop(self) -> None:
        """Give no more signs."""
        self._stopped.set()

    def _beat(self) -> None:
        import ray

        while not self._stopped.wait(self._every_s) and self._is_connected():
            try:
                self._keeper.hear.remote(self.asker)
            except ray.exceptions.RayError:  # disconnected at this very moment
                return

    def _is_connected(self) -> bool:
        import ray

        # The name of this process changes when it connects anew.
        return ray.is_initialized() and bool(
            ray.get_runtime_context().get_worker_id() == self.asker
        )
