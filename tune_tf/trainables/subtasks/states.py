"""Latest states of a trial's subtasks, to restore them from."""

from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from tune_tf.trainables.subtasks.worker import SubtaskSnapshot


@dataclass(frozen=True)
class _Known:
    """State of a subtask, with the previous one until this one is confirmed."""

    epoch: int
    snapshot: Any
    before: "_Known | None" = None


class SubtaskStates:
    """Ray references to the latest state of each subtask, and to the confirmed one before it."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def keep(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a confirmed state, a Ray reference to a :class:`SubtaskSnapshot`."""
        self._known[subtask] = _Known(epoch, snapshot)

    def expect(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a requested state; the previous one is kept until this one is confirmed."""
        self._known[subtask] = _Known(epoch, snapshot, before=self._known.get(subtask))

    def confirm(self, subtask: int) -> None:
        """Confirm the latest state: a process has begun from it."""
        if subtask in self._known:
            known = self._known[subtask]
            self.keep(subtask, known.epoch, known.snapshot)

    def forget(self, subtask: int) -> None:
        """Discard the latest state in favour of the previous one."""
        before = self._known.pop(subtask).before
        if before is not None:
            self._known[subtask] = before

    def epoch(self, subtask: int) -> int:
        """Return the completed epochs of the latest state; 0 if there is none."""
        known = self._known.get(subtask)
        return 0 if known is None else known.epoch

    def last(self, subtask: int) -> Any:
        """Return the reference to the latest state; None if there is none."""
        known = self._known.get(subtask)
        return None if known is None else known.snapshot

    def all_of(self, subtask: int) -> list[Any]:
        """Return the references to the states of a subtask, latest first."""
        found, known = [], self._known.get(subtask)
        while known is not None:
            found.append(known.snapshot)
            known = known.before
        return found

    def lasts(self) -> dict[int, Any]:
        """Return the reference to the latest state of each subtask that has one."""
        return {subtask: known.snapshot for subtask, known in self._known.items()}

    def is_lost(self, subtask: int) -> bool:
        """Return whether the latest state was never created, and discard it in that case."""
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
    """Wait for a state and return it; None if it was lost."""
    try:
        return ray.get(state)
    except RayError:
        return None
