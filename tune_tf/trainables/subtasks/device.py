"""A device of a trial that trains subtasks: its process, and what that was given to do."""

from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError, RayTaskError

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.outcome import Outcome
from tune_tf.trainables.multi_process.heartbeat import Heartbeat
from tune_tf.trainables.multi_process.worker import EpochReport
from tune_tf.trainables.subtasks.queue import Unit


def judged(error: BaseException) -> BaseException:
    """Return an error of Ray's as the trial should raise it."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    return WorkerLostError(str(error)) if isinstance(error, RayError) else error


def is_death(error: BaseException) -> bool:
    """Return whether the process is gone."""
    return isinstance(error, WorkerLostError)


def may_be_retried(error: BaseException) -> bool:
    """Return whether a fresh process may do better: not if memory is short, or a setting wrong."""
    return isinstance(error, WorkerError) and Outcome.of_error(str(error)) is not Outcome.OOM


@dataclass(eq=False)
class SubtaskDevice:
    """A process and what it was given to do.

    Attributes:
        actor: The process.
        name: Of the device, for reports.
        heartbeat: Its signs of life; None while it starts, when it may be silent for long.
        line: Epochs that it was given and has not reported.
        expects: Whether it waits for the state of a subtask that it takes over.
        last: What it reported last.
    """

    actor: Any
    name: str = ""
    heartbeat: Heartbeat | None = None
    line: list[Unit] = field(default_factory=list)
    expects: bool = False
    last: EpochReport | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it can be given work."""
        return self.heartbeat is not None and not self.expects

    def loss(self, now: float, silent_s: float) -> BaseException | None:
        """Return what ended its process, if that is dead or silent for too long.

        Args:
            now: By the clock that its heartbeat was made with.
            silent_s: Seconds without a sign of life that are too long.
        """
        if self.heartbeat is None:
            return None
        try:
            silence_s = self.heartbeat.silence_s(now)
        except RayError as error:
            return judged(error)
        if silence_s <= silent_s:
            return None
        return WorkerLostError(
            f"{self.name} has given no sign of life for {silent_s:g} s: its node is down, cut off "
            "or frozen"
        )
