"""Which device trains which of a trial's subtasks next.

Pure bookkeeping: no process, no clock. A subtask is a model that trains epoch after epoch, on one
device at a time. The unit of work is one epoch of one subtask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

LAG = 2
"""Epochs by which a subtask must be behind a device's own ones for the device to take it over."""

_IN_LINE = 2  # epochs that a device has been given: one that it trains, one that waits for it


@dataclass(frozen=True)
class Unit:
    """One epoch of one subtask, to be trained now.

    Args:
        subtask: Its number.
        epoch: The epoch's number, from 1.
        begins: Whether the device does not have the subtask yet.
        source: The device that has it, and hands it over; None if none has.
    """

    subtask: int
    epoch: int
    begins: bool = False
    source: int | None = None


@dataclass
class _Subtask:
    device: int | None = None
    taken: int = 0  # epochs handed out
    done: int = 0
    has_ended: bool = False

    @property
    def in_flight(self) -> bool:
        return self.taken > self.done


@dataclass
class SubtaskQueue:
    """Hands out epochs so that all subtasks advance alike and no device waits.

    A device trains the least advanced of its own subtasks and of those that nobody has. It takes
    another device's over only when that one is :data:`LAG` epochs behind its own, or when it has
    none: a subtask that moves takes its weights along, and may have to be traced anew.

    Args:
        num_subtasks: Subtasks, all at the beginning.
        num_devices: Devices, numbered from 0.
        usual: By subtask, the device that had it in an earlier trial; those first.
        reported: The last iteration that was reported.
    """

    num_subtasks: int
    num_devices: int
    usual: Sequence[int | None] = ()
    reported: int = 0
    _subtasks: list[_Subtask] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with subtasks that nobody has."""
        self._subtasks = [_Subtask() for _ in range(self.num_subtasks)]

    def begin_at(self, subtask: int, epoch: int, *, ended: bool = False) -> None:
        """Let a subtask go on after an epoch, on whatever device is free.

        Also takes it away from the device that had it, with the epochs not done.
        """
        self._subtasks[subtask] = _Subtask(taken=epoch, done=epoch, has_ended=ended)

    def take(self, device: int) -> Unit | None:
        """Return what a device trains next; None if there is nothing for it now.

        A device may ask again before its epoch is done, so that the next one is there at once; it
        gets one only where enough is left for devices that come after it.
        """
        own = [i for i, each in enumerate(self._subtasks) if each.device in (device, None)]
        others = [i for i, each in enumerate(self._subtasks) if i not in own]
        chosen = self._least(own, device)
        behind = self._least([i for i in others if not self._subtasks[i].in_flight], device)
        if behind is not None and self._is_worth_taking(behind, own):
            chosen = behind
        if chosen is None or not self._may_wait_in_line(chosen, device):
            return None
        subtask = self._subtasks[chosen]
        begins = subtask.device != device
        unit = Unit(chosen, subtask.taken + 1, begins, subtask.device if begins else None)
        subtask.device = device
        subtask.taken += 1
        return unit

    def done(self, subtask: int, *, ended: bool = False) -> None:
        """Note that the oldest epoch handed out of a subtask is trained.

        Args:
            subtask: Its number.
            ended: Whether it has no more to train; epochs handed out meanwhile are void.
        """
        each = self._subtasks[subtask]
        each.done += 1
        if ended:
            each.has_ended = True
            each.taken = each.done

    def lost(self, device: int) -> dict[int, int]:
        """Return the subtasks that a device has, which nobody has from now on, with epochs done."""
        lost = {i: each for i, each in enumerate(self._subtasks) if each.device == device}
        for each in lost.values():
            each.device = None
        return {i: each.done for i, each in lost.items()}

    @property
    def ahead(self) -> int:
        """Epochs that a subtask may be ahead of the last iteration that was reported.

        With less than :data:`LAG` and one more, devices of unequal speed would wait for each other;
        what is trained beyond is lost when the trial is stopped. One device never waits, and trains
        no more than the iteration that is asked for.
        """
        return LAG + 1 if self.num_devices > 1 else 1

    @property
    def devices(self) -> tuple[int | None, ...]:
        """By subtask, the device that has it."""
        return tuple(each.device for each in self._subtasks)

    def _least(self, subtasks: list[int], device: int) -> int | None:
        """Return the least advanced of those that may go on; among equals one it usually has."""

        def order(i: int) -> tuple[int, bool, int]:
            usual = self.usual[i] if i < len(self.usual) else None
            return self._subtasks[i].taken, usual not in (device, None), i

        able = [i for i in subtasks if self._may_go_on(self._subtasks[i])]
        return min(able, key=order, default=None)

    def _may_go_on(self, subtask: _Subtask) -> bool:
        return not subtask.has_ended and subtask.taken < self.reported + self.ahead

    def _is_worth_taking(self, behind: int, own: list[int]) -> bool:
        mine = [self._subtasks[i].taken for i in own if not self._subtasks[i].has_ended]
        return not mine or self._subtasks[behind].taken + LAG <= min(mine)

    def _may_wait_in_line(self, chosen: int, device: int) -> bool:
        """Return whether a device may have an epoch, also behind one that it trains already."""
        in_flight = {i for i, each in enumerate(self._subtasks) if each.in_flight}
        mine = [self._subtasks[i] for i in in_flight if self._subtasks[i].device == device]
        if not mine:
            return True
        if sum(each.taken - each.done for each in mine) >= _IN_LINE:
            return False
        left = [i for i, each in enumerate(self._subtasks) if not each.has_ended]
        idle = len(set(left) - in_flight - {chosen})
        return chosen in in_flight or idle >= self.num_devices - 1
