"""Devices of a trial's subtasks, and the latest states to restore the subtasks from."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from tune_tf.trainables.multi_process.processes import RemoteProcess
from tune_tf.trainables.subtasks.queue import Unit
from tune_tf.trainables.subtasks.worker import SubtaskSnapshot
from tune_tf.trainables.trial_process import EpochReport


@dataclass(eq=False)
class SubtaskDevice:
    """Process of a device and its assigned work.

    Attributes:
        process: Process, which is watched once it has started.
        sent: Epochs sent but not reported yet.
        is_receiving: Whether it waits for the state of a subtask that it takes over.
        last: Latest report.
    """

    process: RemoteProcess
    sent: list[Unit] = field(default_factory=list)
    is_receiving: bool = False
    last: EpochReport | None = None


class SubtaskStates:
    """Ray references to the latest state of each subtask, and to the confirmed one before it."""

    def __init__(self) -> None:
        self._states: defaultdict[int, list[tuple[int, Any]]] = defaultdict(list)

    def keep(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a confirmed state, a Ray reference to a :class:`SubtaskSnapshot`."""
        self._states[subtask] = [(epoch, snapshot)]

    def expect(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a requested state; the previous one is kept until this one is confirmed."""
        self._states[subtask].append((epoch, snapshot))

    def confirm(self, subtask: int) -> None:
        """Confirm the latest state: a process has begun from it."""
        del self._states[subtask][:-1]

    def forget(self, subtask: int) -> None:
        """Discard the latest state in favour of the previous one."""
        self._states[subtask].pop()

    def epoch(self, subtask: int) -> int:
        """Return the completed epochs of the latest state; 0 if there is none."""
        return self._states[subtask][-1][0] if self._states[subtask] else 0

    def last(self, subtask: int) -> Any:
        """Return the reference to the latest state; None if there is none."""
        return self._states[subtask][-1][1] if self._states[subtask] else None

    def all_of(self, subtask: int) -> list[Any]:
        """Return the references to the states of a subtask, latest first."""
        return [snapshot for _, snapshot in reversed(self._states[subtask])]

    def lasts(self) -> dict[int, Any]:
        """Return the reference to the latest state of each subtask that has one."""
        return {subtask: states[-1][1] for subtask, states in self._states.items() if states}

    def is_lost(self, subtask: int) -> bool:
        """Return whether the latest state was never created, and discard it in that case."""
        state = self.last(subtask)
        if state is None or not ray.wait([state], timeout=0)[0]:
            return False
        try:
            ray.get(state)
        except RayError:
            self.forget(subtask)
            return True
        return False


def finished_snapshot(state: Any) -> SubtaskSnapshot | None:
    """Wait for a state and return it; None if it was lost."""
    try:
        return ray.get(state)
    except RayError:
        return None
