"""Control requests from other processes to a running sweep."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tune_tf.events import ControlChannel
from tune_tf.outcome import Outcome
from tune_tf.sweep.stopper import SweepStopper

_LOOK_EVERY_S = 0.5

_logger = logging.getLogger(__name__)


class ControlRequests:
    """Reader of control requests that stops the sweep or single trials.

    Args:
        interrupt: Interrupts the sweep so that it can be resumed; sends SIGINT by default.
    """

    def __init__(
        self,
        channel: ControlChannel,
        end: SweepStopper,
        interrupt: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._end = end
        self._interrupt = interrupt or _interrupt
        self._clock = clock
        self._looked = clock()
        end.add_check(self._look)

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        for request in self._channel.take():
            self._obey(request)

    def _obey(self, request: Mapping[str, Any]) -> None:
        for trial_id in request.get("trial_ids", ()):
            self._end.end_trial(trial_id, Outcome.PRUNED, "stopped by hand")
        if request.get("stop") == "end":
            self._end.end("it was ended by hand")
        elif request.get("stop") == "interrupt":
            self._interrupt()


def _interrupt() -> None:
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGINT)
    else:
        _logger.warning(
            "the sweep runs in a separate thread, where it can only be ended for good: tune-tf "
            "stop --end"
        )
