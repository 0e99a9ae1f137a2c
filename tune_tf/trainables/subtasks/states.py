"""The states to which the subtasks of a trial can go back."""

from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from tune_tf.trainables.subtasks.worker import SubtaskSnapshot


@dataclass(frozen=True)
class _Known:
    """A state to which a subtask can go back.

    Args:
        epoch: Epochs done.
        snapshot: Where Ray has it, a :class:`SubtaskSnapshot`.
        before: The one before, while it is not sure that this one was made.
    """

    epoch: int
    snapshot: Any
    before: "_Known | None" = None


class SubtaskStates:
    """Where Ray has the last states of subtasks, and those before that are surely there."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def keep(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Know a state that is there.

        Args:
            subtask: Whose.
            epoch: Epochs done.
            snapshot: Where Ray has it, a :class:`SubtaskSnapshot`.
        """
        self._known[subtask] = _Known(epoch, snapshot)

    def expect(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Know a state that a process was asked for; the one before stays until it is sure."""
        self._known[subtask] = _Known(epoch, snapshot, before=self._known.get(subtask))

    def confirm(self, subtask: int) -> None:
        """Take the last state for sure: a process has begun from it."""
        if subtask in self._known:
            known = self._known[subtask]
            self.keep(subtask, known.epoch, known.snapshot)

    def forget(self, subtask: int) -> None:
        """Go back to the state before the last one."""
        before = self._known.pop(subtask).before
        if before is not None:
            self._known[subtask] = before

    def epoch(self, subtask: int) -> int:
        """Return the epochs done in the last state; 0 for none."""
        known = self._known.get(subtask)
        return 0 if known is None else known.epoch

    def last(self, subtask: int) -> Any:
        """Return where Ray has the last state; None for none."""
        known = self._known.get(subtask)
        return None if known is None else known.snapshot

    def all_of(self, subtask: int) -> list[Any]:
        """Return where Ray has the states of a subtask, the last one first."""
        found, known = [], self._known.get(subtask)
        while known is not None:
            found.append(known.snapshot)
            known = known.before
        return found

    def lasts(self) -> dict[int, Any]:
        """Return where Ray has the last state of each subtask that has one."""
        return {subtask: known.snapshot for subtask, known in self._known.items()}

    def is_lost(self, subtask: int) -> bool:
        """Return whether the last state was never made; forgets it then."""
        known = self._known.get(subtask)
        if known is None or not ray.wait([known.snapshot], timeout=0)[0]:
            return False
        try:
            ray.get(known.snapshot)
        except RayError:
            self.forget(subtask)
            return True
        return False


def finished_snapshot(state: Any) -> SubtaskSnapshot | None:
    """Return a state once Ray has it; None if it was lost."""
    try:
        return ray.get(state)
    except RayError:
        return None
