"""Signs of life of a trial's process."""

from typing import Any

import ray


class Pulse:
    """Asks an actor whether it is alive, one question at a time, and notes when it said so.

    Args:
        actor: It has a method ``pulse`` that answers while others run.
        now: The time, in seconds.
    """

    def __init__(self, actor: Any, now: float) -> None:
        self._actor = actor
        self._heard = now
        self._question: Any = None

    def silence_s(self, now: float) -> float:
        """Return for how many seconds it has not answered; ask again where it has.

        Raises:
            RayError: It is dead.
        """
        if self._question is not None and ray.wait([self._question], timeout=0)[0]:
            ray.get(self._question)
            self._question = None
            self._heard = now
        if self._question is None:
            self._question = self._actor.pulse.remote()
        return now - self._heard
