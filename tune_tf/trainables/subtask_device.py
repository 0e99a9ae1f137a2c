"""A device of a trial that trains subtasks: its process, and what that was given to do."""

from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError

from tune_tf.errors import WorkerLostError
from tune_tf.trainables.pulses import Pulse
from tune_tf.trainables.subtask_faults import judged
from tune_tf.trainables.subtask_queue import Unit
from tune_tf.trainables.worker import EpochReport


@dataclass(eq=False)
class SubtaskDevice:
    """A process and what it was given to do.

    Attributes:
        actor: The process.
        name: Of the device, for reports.
        pulse: Its signs of life; None while it starts, when it may be silent for long.
        line: Epochs that it was given and has not reported.
        expects: Whether it waits for the state of a subtask that it takes over.
        last: What it reported last.
    """

    actor: Any
    name: str = ""
    pulse: Pulse | None = None
    line: list[Unit] = field(default_factory=list)
    expects: bool = False
    last: EpochReport | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it can be given work."""
        return self.pulse is not None and not self.expects

    def loss(self, now: float, silent_s: float) -> BaseException | None:
        """Return what ended its process, if that is dead or silent for too long.

        Args:
            now: By the clock that its pulse was made with.
            silent_s: Seconds without a sign of life that are too long.
        """
        if self.pulse is None:
            return None
        try:
            silence_s = self.pulse.silence_s(now)
        except RayError as error:
            return judged(error)
        if silence_s <= silent_s:
            return None
        return WorkerLostError(
            f"{self.name} has given no sign of life for {silent_s:g} s: its node is down, cut off "
            "or frozen"
        )
