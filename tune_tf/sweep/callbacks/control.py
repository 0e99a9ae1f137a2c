"""Heeds what is asked of a running sweep from outside."""

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
    """Stops the sweep, or trials of it, when somebody has asked for it.

    Args:
        mailbox: Where it is asked.
        end: What ends the sweep and trials.
        interrupt: Ends the sweep so that a resume goes on with it.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        mailbox: ControlChannel,
        end: SweepStopper,
        interrupt: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mailbox = mailbox
        self._end = end
        self._interrupt = interrupt or _interrupt
        self._clock = clock
        self._looked = clock()
        end.ask(self._look)

    def _look(self) -> None:
        """Look now and then whether something is asked."""
        now = self._clock()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        for letter in self._mailbox.take():
            self._heed(letter)

    def _heed(self, letter: Mapping[str, Any]) -> None:
        for trial_id in letter.get("trial_ids", ()):
            self._end.end_trial(trial_id, Outcome.PRUNED, "stopped by hand")
        if letter.get("stop") == "end":
            self._end.end("it was ended by hand")
        elif letter.get("stop") == "interrupt":
            self._interrupt()


def _interrupt() -> None:
    """Do what Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGINT)
    else:
        _logger.warning(
            "the sweep runs in a thread of its own, where it can only be ended for good: "
            "tune-tf stop --end"
        )
