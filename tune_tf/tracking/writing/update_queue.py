"""Queue of run updates for the writer's thread, on disk as far as possible."""

import logging
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from tune_tf.tracking.writing.run_update import RunUpdate
from tune_tf.tracking.writing.spool import Spool

_logger = logging.getLogger(__name__)

_READ_AT_ONCE = 64


@dataclass
class PendingUpdate:
    """Unwritten updates of one run, merged as far as possible.

    Times are seconds on the monotonic clock.
    """

    due: float  # time of the next write
    first: int  # number of the first update added
    last: int = 0  # number of the last update added
    updates: deque[RunUpdate] = field(default_factory=deque)
    count: int = 0  # updates added
    attempts: int = 0  # failed writes
    not_before: float = 0.0  # earliest time of the next write, even at the end

    def add(self, number: int, update: RunUpdate) -> None:
        """Add a later update."""
        self.last = number
        self.count += 1
        if self.updates and not update.fresh:
            self.updates[-1].merge(update)
        else:  # a new trial with a reused id
            self.updates.append(update)

    @property
    def size(self) -> int:
        """Number of values to write."""
        return sum(update.size for update in self.updates)

    @property
    def reconciles(self) -> bool:
        """Whether an update ends the runs that no other update has ended."""
        return any(update.trials is not None for update in self.updates)

    @property
    def has_only_artifacts(self) -> bool:
        """Whether only artifacts are left."""
        return all(update.size == len(update.texts) + len(update.files) for update in self.updates)


class UpdateQueue:
    """Queue of numbered updates that keeps each until it is written.

    Updates are put into the spool and read back when taken. Without a spool, or while its disk is
    full, at most ``capacity`` of them wait in memory. Any thread puts, one takes. ``lock`` guards
    the queue; callers of all but :meth:`take` and :meth:`close` hold it.
    """

    def __init__(self, spool: Spool | None, capacity: int, lock: threading.Condition) -> None:
        self.last_taken = 0
        """Number of the last update taken."""
        self._spool = spool
        self._capacity = capacity
        self._lock = lock
        self._last_put = self._last_on_disk = spool.last if spool is not None else 0
        self._num_unread = 0  # could not be read back, and stay on disk
        self._in_memory: dict[int, RunUpdate] = {}  # put, neither on disk nor written
        self._disk_failed = False
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether all updates were taken."""
        return self._last_put == self.last_taken

    @property
    def is_full(self) -> bool:
        """Whether the limit of updates in memory is reached."""
        return self._last_put - max(self.last_taken, self._last_on_disk) >= self._capacity

    @property
    def num_waiting(self) -> int:
        """Number of updates that were not taken, or could not be read back."""
        return self._last_put - self.last_taken + self._num_unread

    def put(self, update: RunUpdate) -> bool:
        """Keep an update; return False if memory is full or the queue is closed."""
        if self._is_closed:
            return False
        number = self._last_put + 1
        if not self._put_on_disk(number, update):
            if self.is_full:
                return False
            self._in_memory[number] = update
        self._last_put = number
        return True

    def take(self) -> list[tuple[int, RunUpdate]]:
        """Return the oldest waiting updates with their numbers."""
        while True:
            with self._lock:
                last_on_disk = self._last_on_disk
                if self._spool is None or last_on_disk <= self.last_taken:
                    waiting = (
                        each for each in self._in_memory.items() if each[0] > self.last_taken
                    )
                    updates = [(n, update.copy()) for n, update in islice(waiting, _READ_AT_ONCE)]
                    self.last_taken = updates[-1][0] if updates else self.last_taken
                    return updates
            if updates := self._read(self._spool, last_on_disk):
                return updates

    def mark_written(self, run: str, last: int) -> None:
        """Forget a run's written updates, up to a number."""
        for number, update in list(self._in_memory.items()):
            if number <= last and update.run == run:
                del self._in_memory[number]

    def discard_below(self, number: int) -> None:
        """Remove files from disk whose updates all have lower numbers and so are written."""
        if self._spool is not None and not self._is_closed and not self._num_unread:
            with suppress(OSError):  # delivering the rest again changes nothing
                self._spool.discard_below(number)

    def unwritten(self) -> list[RunUpdate]:
        """Return copies of the updates that are only in memory."""
        return [update.copy() for update in self._in_memory.values()]

    def close(self) -> None:
        """Write updates that are only in memory to disk, if possible, and release the spool."""
        with self._lock:
            if self._spool is not None and not self._is_closed:
                with suppress(OSError):
                    self._spill(self._spool)
            self._is_closed = True
        if self._spool is not None:
            self._spool.close()

    def _put_on_disk(self, number: int, update: RunUpdate) -> bool:
        if self._spool is None:
            return False
        try:
            self._spill(self._spool)
            self._spool.append(number, update)
        except OSError as error:
            if not self._disk_failed:
                self._disk_failed = True
                _logger.warning(
                    "MLflow updates cannot be spooled to disk and are kept in memory; training "
                    "continues: %s",
                    error,
                )
            return False
        if self._disk_failed:
            self._disk_failed = False
            _logger.info("MLflow updates are spooled to disk again")
        self._last_on_disk = number
        return True

    def _spill(self, spool: Spool) -> None:
        """Write updates in memory to disk, including those taken but not written."""
        for number, update in list(self._in_memory.items()):
            spool.append(number, update)
            self._last_on_disk = number
            del self._in_memory[number]

    def _read(self, spool: Spool, last: int) -> list[tuple[int, RunUpdate]]:
        """Read the next updates from disk; those up to ``last`` are skipped if that fails."""
        try:
            updates = spool.read(self.last_taken, _READ_AT_ONCE)
        except OSError as error:
            updates = []
            self._num_unread += last - self.last_taken
            _logger.warning("MLflow updates cannot be read back from disk: %s", error)
        with self._lock:
            self.last_taken = updates[-1][0] if updates else last
        return updates
