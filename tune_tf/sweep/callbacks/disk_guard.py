"""Room on the disks that a sweep writes to: without it, no new trial starts."""

import contextlib
import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.config.disk_settings import told_bytes

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_MORE = (
    1.1  # what has to be free before it goes on, so that it does not begin and stop all the time
)


def free_bytes(path: Path) -> int:
    """Return how much may be written where a path lies."""
    return shutil.disk_usage(path).free


class DiskGuard(Callback):
    """Says that no new trial may start while there is too little room; a Tune callback.

    Trials that have begun go on. The sweep goes on by itself once there is room again. It looks at
    the disks of this machine, on which the driver runs.

    Args:
        min_free_bytes: How much has to be free; 0 for no limit.
        places: Folders that the sweep writes to.
        held: Told why trials are held back.
        went_on: Called when they are not any more.
        free: Returns the free bytes of a folder.
        clock: Seconds that only grow.

    Attributes:
        interrupted: Whether Ctrl-C was pressed.
    """

    def __init__(
        self,
        min_free_bytes: int,
        places: Iterable[Path],
        *,
        held: Callable[[str], None],
        went_on: Callable[[], None],
        free: Callable[[Path], int] = free_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interrupted = False
        self._min_free_bytes = min_free_bytes
        self._places = tuple(dict.fromkeys(places))
        self._held, self._went_on = held, went_on
        self._free = free
        self._clock = clock
        self._looked_s = float("-inf")
        self._why: str | None = None
        self._handler: Any = None

    def setup(self, **info: Any) -> None:
        """See Ctrl-C too, which Tune notes and looks at only between its steps."""
        if threading.current_thread() is not threading.main_thread():
            return
        tunes = signal.getsignal(signal.SIGINT)

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, tunes)
            signal.raise_signal(signal.SIGINT)

        self._handler = (interrupt, tunes)
        signal.signal(signal.SIGINT, interrupt)

    def may_start(self) -> bool:
        """Return whether a new trial may start now."""
        if self._clock() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = self._clock()
            self._look()
        return self._why is None

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Look, also while no trial is to start."""
        self.may_start()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Leave Ctrl-C to Tune again."""
        if self._handler and signal.getsignal(signal.SIGINT) is self._handler[0]:
            signal.signal(signal.SIGINT, self._handler[1])

    def _look(self) -> None:
        if not self._min_free_bytes:
            return
        why = self._short()
        if why and self._why is None:
            _log.warning("no new trial starts: %s. It goes on by itself when there is room", why)
            with contextlib.suppress(OSError):  # there may be no room left to note it
                self._held(why)
        elif self._why and not why:
            _log.warning("there is room on the disk again: new trials start")
            self._went_on()
        self._why = why

    def _short(self) -> str | None:
        """Return where room is short; None for nowhere."""
        wanted = self._min_free_bytes * (1 if self._why is None else _MORE)
        for path in self._places:
            try:
                free = self._free(path)
            except OSError:
                continue  # it is not there yet, or gone: whoever writes to it will say so
            if free < wanted:
                return (
                    f"{told_bytes(free)} are free at {path}, and min_free_disk is "
                    f"{told_bytes(self._min_free_bytes)}"
                )
        return None
