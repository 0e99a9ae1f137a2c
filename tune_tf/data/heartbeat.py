"""The sign of life of a process that asked for prepared data."""

import threading
from typing import Any, ClassVar


class Heartbeat:
    """Tells a :class:`~tune_tf.data.preparer.Preparer` at times that this process is there.

    An actor cannot see the processes of other nodes, and whatever it held of them (an object, a
    handle) would keep them from ending in good order.

    Args:
        preparer: Its handle.
        every_s: Seconds between two signs.
    """

    _of_process: ClassVar["Heartbeat | None"] = None

    def __init__(self, preparer: Any, every_s: float) -> None:
        import ray

        self._preparer = preparer
        self.asker: str = ray.get_runtime_context().get_worker_id()
        self._every_s = every_s
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="tune_tf heartbeat", daemon=True).start()

    @classmethod
    def to(cls, preparer: Any, every_s: float) -> "Heartbeat":
        """Return the one of this process, which starts where it does not yet go to a preparer."""
        current = cls._of_process
        if current is None or not current.goes_to(preparer):
            if current is not None:
                current.stop()
            current = cls._of_process = cls(preparer, every_s)
        return current

    def goes_to(self, preparer: Any) -> bool:
        """Whether a preparer hears it from this process as it is connected now."""
        return bool(self._preparer == preparer) and self._is_connected()

    def stop(self) -> None:
        """Give no more signs."""
        self._stopped.set()

    def _beat(self) -> None:
        import ray

        while not self._stopped.wait(self._every_s) and self._is_connected():
            try:
                self._preparer.hear.remote(self.asker)
            except ray.exceptions.RayError:  # disconnected at this very moment
                return

    def _is_connected(self) -> bool:
        import ray

        # The name of this process changes when it connects anew.
        return ray.is_initialized() and bool(
            ray.get_runtime_context().get_worker_id() == self.asker
        )
