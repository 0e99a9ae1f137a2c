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
    """Unwritten updates of one run.

    Args:
        due: Time of the next write, on the monotonic clock, in seconds.
        first: Number of the first update added.
        last: Number of the last update added.
        entries: Unwritten updates, in order.
        count: Number of updates added.
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
        """Add a later update."""
        self.last = number
        self.count += 1
        self.weight += max(1, len(entry.reports))
        if self.entries and not entry.fresh:
            self.entries[-1].merge(entry)
        else:  # a new trial with a reused id
            self.entries.append(entry)

    @property
    def size(self) -> int:
        """Number of values to write."""
        return sum(entry.size for entry in self.entries)

    @property
    def reconciles(self) -> bool:
        """Whether an update ends the runs that no other update has ended."""
        return any(entry.trials is not None for entry in self.entries)

    @property
    def has_only_artifacts(self) -> bool:
        """Whether only artifacts are left."""
        return all(entry.size == len(entry.texts) + len(entry.files) for entry in self.entries)


_logger = logging.getLogger(__name__)

_READ_AT_ONCE = 64


class UpdateQueue:
    """Queue of numbered updates that keeps each until it is written.

    With a spool, updates are put on disk and read back when taken. Without one, or while its disk
    is full, they wait in memory, up to a limit. Any thread puts, under the lock; one takes.

    Args:
        spool: Storage of the updates; None to keep all in memory.
        capacity: Most updates in memory.
        lock: Guards the queue; callers of all but :meth:`take` and :meth:`close` hold it.
    """

    def __init__(self, spool: Spool | None, capacity: int, lock: threading.Condition) -> None:
        self.last_put = spool.last if spool is not None else 0
        """Number of the last update put."""
        self.last_taken = 0
        """Number of the last update taken."""
        self.num_unread = 0
        """Number of updates that could not be read back; they stay on disk."""
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
        """Whether all updates were taken."""
        return self.last_put == self.last_taken

    @property
    def is_full(self) -> bool:
        """Whether the memory limit is reached."""
        return len(self._in_memory) >= self._capacity

    @property
    def spool_path(self) -> Path | None:
        """Folder of the spool; None without one."""
        return self._spool.path if self._spool is not None else None

    @property
    def num_waiting(self) -> int:
        """Number of updates that were not taken, or could not be read back."""
        return self.last_put - self.last_taken + self.num_unread

    @property
    def num_unwritten(self) -> int:
        """Number of updates that are only in memory."""
        return len(self._unwritten)

    def put(self, entry: RunUpdate) -> bool:
        """Write an update to disk; return False if that is impossible."""
        if self._spool is None or self._is_closed:
            return False
        try:
            self._spill(self._spool)
            self._spool.append(self.last_put + 1, entry)
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
        self.last_put += 1
        self._last_on_disk = self.last_put
        return True

    def put_in_memory(self, entry: RunUpdate) -> bool:
        """Keep an update in memory; return False if the limit is reached."""
        if self.is_full:
            return False
        self.last_put += 1
        self._in_memory.append((self.last_put, entry))
        self._unwritten[self.last_put] = entry.copy()
        return True

    def take(self) -> list[tuple[int, RunUpdate]]:
        """Return the oldest waiting updates with their numbers."""
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
        """Forget a run's written updates, up to a number."""
        for number in [n for n in self._unwritten if n <= last]:
            if self._unwritten[number].run == run:
                del self._unwritten[number]

    def discard_below(self, number: int) -> None:
        """Remove files from disk whose updates all have lower numbers and so are written."""
        if self._spool is not None and not self._is_closed and not self.num_unread:
            with suppress(OSError):  # delivering the rest again changes nothing
                self._spool.discard_below(number)

    def unwritten(self) -> list[RunUpdate]:
        """Return copies of the updates that are only in memory."""
        return [entry.copy() for _, entry in sorted(self._unwritten.items())]

    def close(self) -> None:
        """Write updates that are only in memory to disk, if possible, and release the spool."""
        with self._lock:
            if self._spool is not None and not self._is_closed:
                with suppress(OSError):
                    self._spill(self._spool)
            self._is_closed = True
        if self._spool is not None:
            self._spool.close()

    def _spill(self, spool: Spool) -> None:
        """Write updates in memory to disk, including those taken but not written."""
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
            # Unreadable updates are skipped, and stay on disk.
            self.last_taken = entries[-1][0] if entries else last
        return entries
