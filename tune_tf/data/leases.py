"""Which contents are still wanted by somebody."""

import asyncio
import time
from collections.abc import Callable

BEATS = 10
"""Signs of life in the time that a content outlives the last one."""


class Leases:
    """Remembers who wants what, and when each was last heard of.

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
