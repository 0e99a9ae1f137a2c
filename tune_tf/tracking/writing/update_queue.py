"""Queue of run updates for the writer thread, on disk or in memory."""

import logging
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tune_tf.tracking.writing.run_update import RunUpdate
from tune_tf.tracking.writing.spool import Spool


@dataclass
class PendingUpdate:
    """Unwritten entries of one run.

    Args:
        due: Time of the next write, on the monotonic clock, in seconds.
        first: Number of the first entry added.
        last: Number of the last entry added.
        entries: Unwritten entries, in order.
        count: Number of entries added.
        weight: Size in reports, against the limit of the backlog.
        attempts: Number of failed writes.
        not_before: Earliest time of the next write, even if someone waits.
    """

    due: float
    first: int
    last: int = 0
    entries: deque[RunUpdate] = field(default_factory=deque)
    count: int = 0
    weight: int = 0
    attempts: int = 0
    not_before: float = 0.0

    def add(self, number: int, entry: RunUpdate) -> None:
        """Add a later entry."""
        self.last = number
        self.count += 1
        self.weight += max(1, len(entry.reports))
        if self.entries and not entry.fresh:
            self.entries[-1].merge(entry)
        else:  # a trial made anew under the same id is not the one before
            self.entries.append(entry)

    @property
    def size(self) -> int:
        """How many values there are to write."""
        return sum(entry.size for entry in self.entries)

    @property
    def reconciles(self) -> bool:
        """Whether it ends the runs that no other entry has ended."""
        return any(entry.trials is not None for entry in self.entries)

    @property
    def has_only_artifacts(self) -> bool:
        """Whether only artifacts are left."""
        return all(entry.size == len(entry.texts) + len(entry.files) for entry in self.entries)


_logger = logging.getLogger(__name__)

_READ_AT_ONCE = 64


class UpdateQueue:
    """Queue of numbered entries that keeps each until it is written.

    With a spool, entries are put on disk and read back when taken. Without one, or while its disk
    is full, they wait in memory, up to a limit. Any thread puts, under the lock; one takes.

    Args:
        spool: Keeps the entries; None to keep all in memory.
        capacity: Most entries in memory.
        lock: Guards the queue; callers of all but :meth:`take` and :meth:`close` hold it.
    """

    def __init__(self, spool: Spool | None, capacity: int, lock: threading.Condition) -> None:
        self.last_put = spool.last if spool is not None else 0
        """Number of the entry that was put last."""
        self.last_taken = 0
        """Number of the entry that was taken last."""
        self.num_unread = 0
        """How many entries could not be read back; they stay on disk."""
        self._spool = spool
        self._capacity = capacity
        self._lock = lock
        self._last_on_disk = self.last_put
        self._in_memory: deque[tuple[int, RunUpdate]] = deque()  # put, neither on disk nor taken
        self._unwritten: dict[int, RunUpdate] = {}  # put, neither on disk nor written
        self._disk_failed = False
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether all that was put was taken."""
        return self.last_put == self.last_taken

    @property
    def is_full(self) -> bool:
        """Whether there is no more room in memory."""
        return len(self._in_memory) >= self._capacity

    @property
    def spool_path(self) -> Path | None:
        """Folder that keeps what waits, as far as the disk has room; None without one."""
        return self._spool.path if self._spool is not None else None

    @property
    def num_waiting(self) -> int:
        """How many entries were put and not taken, or could not be read back."""
        return self.last_put - self.last_taken + self.num_unread

    @property
    def num_unwritten(self) -> int:
        """How many entries are in memory alone."""
        return len(self._unwritten)

    def put(self, entry: RunUpdate) -> bool:
        """Take in an entry; return whether there was room on disk."""
        if self._spool is None or self._is_closed:
            return False
        try:
            self._spill(self._spool)
            self._spool.append(self.last_put + 1, entry)
        except OSError as error:
            if not self._disk_failed:
                self._disk_failed = True
                _logger.warning(
                    "MLflow updates cannot be spooled to disk and wait in memory; training "
                    "continues: %s",
                    error,
                )
            return False
        if self._disk_failed:
            self._disk_failed = False
            _logger.info("MLflow updates are spooled to disk again")
        self.last_put += 1
        self._last_on_disk = self.last_put
        return True

    def put_in_memory(self, entry: RunUpdate) -> bool:
        """Take in an entry for which there is no room on disk; return whether there is here."""
        if self.is_full:
            return False
        self.last_put += 1
        self._in_memory.append((self.last_put, entry))
        self._unwritten[self.last_put] = entry.copy()
        return True

    def take(self) -> list[tuple[int, RunUpdate]]:
        """Return the oldest entries that wait, with their numbers; none if nothing waits."""
        while True:
            with self._lock:
                limit = min(self.last_put - self.last_taken, _READ_AT_ONCE)
                last_on_disk = self._last_on_disk
                if self._spool is None or last_on_disk <= self.last_taken:
                    return self._take_from_memory()
            entries = self._read(self._spool, limit, last_on_disk)
            if entries:
                return entries

    def mark_written(self, run: str, last: int) -> None:
        """Forget a run's entries up to a number: they are written."""
        for number in [n for n in self._unwritten if n <= last]:
            if self._unwritten[number].run == run:
                del self._unwritten[number]

    def discard_below(self, number: int) -> None:
        """Remove from disk what holds only entries with lower numbers: they are written."""
        if self._spool is not None and not self._is_closed and not self.num_unread:
            with suppress(OSError):  # what stays is delivered again, which changes nothing
                self._spool.discard_below(number)

    def unwritten(self) -> list[RunUpdate]:
        """Return copies of the entries that are in memory alone."""
        return [entry.copy() for _, entry in sorted(self._unwritten.items())]

    def close(self) -> None:
        """Write to disk what is in memory alone, if it can be, and give the spool free."""
        with self._lock:
            if self._spool is not None and not self._is_closed:
                with suppress(OSError):
                    self._spill(self._spool)
            self._is_closed = True
        if self._spool is not None:
            self._spool.close()

    def _spill(self, spool: Spool) -> None:
        """Write what waits in memory to disk, also what was taken but not written."""
        for number, entry in sorted(self._unwritten.items()):
            spool.append(number, entry)
            self._last_on_disk = number
            del self._unwritten[number]
            if self._in_memory and self._in_memory[0][0] == number:
                self._in_memory.popleft()

    def _take_from_memory(self) -> list[tuple[int, RunUpdate]]:
        count = min(len(self._in_memory), _READ_AT_ONCE)
        entries = [self._in_memory.popleft() for _ in range(count)]
        if entries:
            self.last_taken = entries[-1][0]
        return entries

    def _read(self, spool: Spool, limit: int, last: int) -> list[tuple[int, RunUpdate]]:
        try:
            entries = spool.read(self.last_taken, limit)
        except OSError as error:
            entries = []
            self.num_unread += last - self.last_taken
            _logger.warning("MLflow updates cannot be read back from disk: %s", error)
        with self._lock:
            # What cannot be read is passed over, and stays where it is.
            self.last_taken = entries[-1][0] if entries else last
        return entries
