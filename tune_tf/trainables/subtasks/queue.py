"""Scheduling of a trial's subtasks on its devices.

Pure bookkeeping without processes or a clock. A subtask is a model that trains epoch after epoch,
on one device at any time. The unit of work is one epoch of one subtask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

LAG = 2
"""Epochs by which a subtask must lag behind a device's own subtasks to be moved there."""

_QUEUED = 2  # epochs sent to a device: one in training, one waiting


@dataclass(frozen=True)
class SubtaskEpoch:
    """One epoch of one subtask.

    Args:
        subtask: Number of the subtask.
        epoch: Number of the epoch, from 1.
        begins: Whether the subtask is new on the device.
        source: Device that hands the subtask over; None if it is on no device.
    """

    subtask: int
    epoch: int
    begins: bool = False
    source: int | None = None


@dataclass
class _Subtask:
    device: int | None = None
    taken: int = 0  # assigned epochs
    done: int = 0
    has_ended: bool = False

    @property
    def in_flight(self) -> bool:
        return self.taken > self.done


@dataclass
class SubtaskQueue:
    """Queue that assigns epochs so that subtasks advance evenly and no device waits.

    A device trains the least advanced of its own and the unassigned subtasks. It takes over another
    device's subtask only if that lags :data:`LAG` epochs behind its own ones, or if it has none:
    moving a subtask copies its weights, and may require new tracing.

    Args:
        num_subtasks: Number of subtasks, all at their beginning.
        num_devices: Number of devices.
        usual: By subtask, its device in an earlier trial, which is preferred.
        reported: Last reported iteration.
    """

    num_subtasks: int
    num_devices: int
    usual: Sequence[int | None] = ()
    reported: int = 0
    _subtasks: list[_Subtask] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with unassigned subtasks."""
        self._subtasks = [_Subtask() for _ in range(self.num_subtasks)]

    def begin_at(self, subtask: int, epoch: int, *, ended: bool = False) -> None:
        """Let a subtask resume after an epoch on any device.

        If it was assigned to a device, its unfinished epochs are dropped.
        """
        self._subtasks[subtask] = _Subtask(taken=epoch, done=epoch, has_ended=ended)

    def take(self, device: int) -> SubtaskEpoch | None:
        """Return the next unit for a device; None if there is none now.

        A device may ask before its current epoch is done, to have the next one queued. It gets one
        only if enough remains for other devices.
        """
        own = [i for i, each in enumerate(self._subtasks) if each.device in (device, None)]
        others = [i for i, each in enumerate(self._subtasks) if i not in own]
        chosen = self._least(own, device)
        behind = self._least([i for i in others if not self._subtasks[i].in_flight], device)
        if behind is not None and self._is_worth_moving(behind, own):
            chosen = behind
        if chosen is None or not self._may_queue(chosen, device):
            return None
        subtask = self._subtasks[chosen]
        begins = subtask.device != device
        unit = SubtaskEpoch(chosen, subtask.taken + 1, begins, subtask.device if begins else None)
        subtask.device = device
        subtask.taken += 1
        return unit

    def done(self, subtask: int, *, ended: bool = False) -> None:
        """Mark the oldest assigned epoch of a subtask as done.

        If it has ``ended``, epochs assigned meanwhile are void.
        """
        each = self._subtasks[subtask]
        each.done += 1
        if ended:
            each.has_ended = True
            each.taken = each.done

    def lost(self, device: int) -> dict[int, int]:
        """Unassign all subtasks of a device, and return their completed epochs."""
        lost = {i: each for i, each in enumerate(self._subtasks) if each.device == device}
        for each in lost.values():
            each.device = None
        return {i: each.done for i, each in lost.items()}

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

    def _least(self, subtasks: list[int], device: int) -> int | None:
        """Return the least advanced subtask that may continue, preferably a usual one."""

        def order(i: int) -> tuple[int, bool, int]:
            usual = self.usual[i] if i < len(self.usual) else None
            return self._subtasks[i].taken, usual not in (device, None), i

        able = [i for i in subtasks if self._may_continue(self._subtasks[i])]
        return min(able, key=order, default=None)

    def _may_continue(self, subtask: _Subtask) -> bool:
        return not subtask.has_ended and subtask.taken < self.reported + self.ahead

    def _is_worth_moving(self, behind: int, own: list[int]) -> bool:
        mine = [self._subtasks[i].taken for i in own if not self._subtasks[i].has_ended]
        return not mine or self._subtasks[behind].taken + LAG <= min(mine)

    def _may_queue(self, chosen: int, device: int) -> bool:
        """Return whether a device may have an epoch, possibly queued behind its current one."""
        in_flight = {i for i, each in enumerate(self._subtasks) if each.in_flight}
        mine = [self._subtasks[i] for i in in_flight if self._subtasks[i].device == device]
        if not mine:
            return True
        if sum(each.taken - each.done for each in mine) >= _QUEUED:
            return False
        left = [i for i, each in enumerate(self._subtasks) if not each.has_ended]
        idle = len(set(left) - in_flight - {chosen})
        return chosen in in_flight or idle >= self.num_devices - 1
