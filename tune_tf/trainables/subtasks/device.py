"""State of a device that trains subtasks: its process and its queue."""

from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError, RayTaskError

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.outcome import Outcome
from tune_tf.trainables.multi_process.heartbeat import Heartbeat
from tune_tf.trainables.multi_process.worker import EpochReport
from tune_tf.trainables.subtasks.queue import Unit


def judged(error: BaseException) -> BaseException:
    """Return the exception that a trial should raise for a Ray error."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    return WorkerLostError(str(error)) if isinstance(error, RayError) else error


def is_death(error: BaseException) -> bool:
    """Return whether an error means that the process died."""
    return isinstance(error, WorkerLostError)


def may_be_retried(error: BaseException) -> bool:
    """Return whether a new process may succeed: not after out-of-memory or settings errors."""
    return isinstance(error, WorkerError) and Outcome.of_error(str(error)) is not Outcome.OOM


@dataclass(eq=False)
class SubtaskDevice:
    """Process of a device and its assigned work.

    Attributes:
        actor: Ray actor.
        name: Name of the device, for reports.
        heartbeat: Heartbeat of the process; None while it starts, when it may be silent for long.
        line: Epochs sent but not reported yet.
        expects: Whether it waits for the state of a subtask that it takes over.
        last: Latest report.
    """

    actor: Any
    name: str = ""
    heartbeat: Heartbeat | None = None
    line: list[Unit] = field(default_factory=list)
    expects: bool = False
    last: EpochReport | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the device accepts work."""
        return self.heartbeat is not None and not self.expects

    def loss(self, now: float, silent_s: float) -> BaseException | None:
        """Return an error if the process is dead or has been silent for over ``silent_s``."""
        if self.heartbeat is None:
            return None
        try:
            silence_s = self.heartbeat.silence_s(now)
        except RayError as error:
            return judged(error)
        if silence_s <= silent_s:
            return None
        return WorkerLostError(
            f"{self.name} has not responded for {silent_s:g} s: its node is down, unreachable or "
            "frozen"
        )
