"""Scheduling of a trial's subtasks on its devices, without processes or a clock.

A subtask is a model that trains on one device at any time; a unit of work is one of its epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

LAG = 2
"""Epochs by which a subtask must lag behind a device's own subtasks to be moved there."""

_QUEUED = 2  # epochs sent to a device: one in training, one waiting


@dataclass(frozen=True)
class SubtaskEpoch:
    """One epoch of one subtask, both by number; the first epoch is 1.

    A subtask that ``begins`` is new on the device; ``source`` is the device that hands it over.
    """

    subtask: int
    epoch: int
    begins: bool = False
    source: int | None = None


@dataclass
class _Subtask:
    device: int | None = None
    num_assigned: int = 0  # epochs
    num_completed: int = 0
    has_ended: bool = False

    @property
    def num_pending(self) -> int:
        return self.num_assigned - self.num_completed


@dataclass
class SubtaskQueue:
    """Queue that assigns epochs so that subtasks advance evenly and no device waits.

    A device trains the least advanced of its own and the unassigned subtasks. It takes over another
    device's subtask only if that lags :data:`LAG` epochs behind its own ones, or if it has none:
    moving a subtask copies its weights, and may require new tracing.

    A subtask begins, if possible, on its ``preferred`` device, that of an earlier trial;
    ``reported`` is the last reported iteration.
    """

    num_subtasks: int
    num_devices: int
    preferred: Sequence[int | None] = ()
    reported: int = 0
    _subtasks: list[_Subtask] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with unassigned subtasks."""
        self._subtasks = [_Subtask() for _ in range(self.num_subtasks)]

    def begin_at(self, number: int, epoch: int, *, ended: bool = False) -> None:
        """Let a subtask resume after an epoch on any device; drop its unfinished epochs."""
        self._subtasks[number] = _Subtask(None, epoch, epoch, ended)

    def assign(self, device: int) -> SubtaskEpoch | None:
        """Return the next epoch for a device; None if there is none now.

        A device may ask while it trains, to have the next epoch queued. It gets one only if enough
        remains for other devices.
        """
        local = [i for i, each in enumerate(self._subtasks) if each.device in (device, None)]
        others = [i for i in range(self.num_subtasks) if i not in local]
        number = self._least_advanced(local, device)
        other = self._least_advanced(
            [i for i in others if not self._subtasks[i].num_pending], device
        )
        if other is not None and self._is_worth_moving(other, local):
            number = other
        if number is None or not self._may_queue(number, device):
            return None
        subtask = self._subtasks[number]
        begins, source = subtask.device != device, subtask.device
        subtask.device = device
        subtask.num_assigned += 1
        return SubtaskEpoch(number, subtask.num_assigned, begins, source if begins else None)

    def complete(self, number: int, *, ended: bool = False) -> None:
        """Mark the oldest assigned epoch of a subtask as completed.

        If it has ``ended``, epochs assigned meanwhile are void.
        """
        subtask = self._subtasks[number]
        subtask.num_completed += 1
        if ended:
            subtask.has_ended = True
            subtask.num_assigned = subtask.num_completed

    @property
    def ahead(self) -> int:
        """Epochs that a subtask may be ahead of the last reported iteration.

        With fewer than :data:`LAG` + 1, devices of unequal speed would wait for each other; epochs
        beyond that are wasted when the trial is stopped. A single device never waits, and trains
        only the requested iteration.
        """
        return LAG + 1 if self.num_devices > 1 else 1

    @property
    def devices(self) -> tuple[int | None, ...]:
        """Device of each subtask."""
        return tuple(each.device for each in self._subtasks)

    def num_completed(self, number: int) -> int:
        """Return the completed epochs of a subtask."""
        return self._subtasks[number].num_completed

    def _least_advanced(self, numbers: list[int], device: int) -> int | None:
        """Return the least advanced subtask that may continue, preferably one of the device."""

        def order(number: int) -> tuple[int, bool, int]:
            preferred = self.preferred[number] if number < len(self.preferred) else None
            is_foreign = preferred not in (device, None)
            return self._subtasks[number].num_assigned, is_foreign, number

        limit = self.reported + self.ahead
        candidates = [
            number
            for number in numbers
            if not self._subtasks[number].has_ended and self._subtasks[number].num_assigned < limit
        ]
        return min(candidates, key=order, default=None)

    def _is_worth_moving(self, number: int, local: list[int]) -> bool:
        epochs = [self._subtasks[i].num_assigned for i in local if not self._subtasks[i].has_ended]
        return not epochs or self._subtasks[number].num_assigned + LAG <= min(epochs)

    def _may_queue(self, number: int, device: int) -> bool:
        """Return whether a device may have an epoch, possibly queued behind its current one."""
        pending = [each.num_pending for each in self._subtasks if each.device == device]
        if not sum(pending):
            return True
        if sum(pending) >= _QUEUED:
            return False
        idle = [
            i
            for i, each in enumerate(self._subtasks)
            if i != number and not each.has_ended and not each.num_pending
        ]
        return bool(self._subtasks[number].num_pending) or len(idle) >= self.num_devices - 1
