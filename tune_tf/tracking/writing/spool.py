"""On-disk spool of run updates that survives a kill and an unavailable store."""

import json
import logging
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import append_line, lock_file, write_atomically
from tune_tf.errors import SweepConflictError
from tune_tf.tracking.writing.run_update import RunUpdate

SPOOL_FOLDER = "mlflow-spool"
"""Name of the spool in a sweep's folder."""

_log = logging.getLogger(__name__)
_SETTINGS = "about"
_LOCK = "lock"
_SUFFIX = ".jsonl"  # Tune would copy .json files


@dataclass
class _Segment:
    """File of numbered updates, one per line, named by the number of the first."""

    path: Path
    last: int = 0  # number of the last update; 0 without one
    size: int = 0  # of the complete lines, in bytes
    count: int = 0  # updates left by an earlier process


class Spool:
    """On-disk spool of numbered run updates, in order, locked by one process.

    Updates are appended to one file until that is large, then to another; a file is removed once
    all its updates are delivered. An update is written by one system call without ``fsync``: it
    survives the end of the process, but not a crash of the machine. A process never appends to
    another one's file, so a line torn by a full disk or a kill is last in its file, and skipped.

    Updates delivered since the last removal of a file are read again by the next process, so the
    reader must detect the values that the store already has.

    Args:
        path: The folder, created if missing, and removed by :meth:`close` if empty.
        settings: Settings for any process that delivers the updates; None to read them.
        segment_bytes: Size of a file, in bytes, from which another is started. After a kill, up to
            this much is delivered again; for 2,000 trials in one file that took minutes.

    Raises:
        SweepConflictError: Another process holds the spool.
        OSError: The folder cannot be created or written to.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        segment_bytes: int = 250_000,
    ) -> None:
        self.path = path
        self._segment_bytes = segment_bytes
        self._mutex = threading.Lock()
        self._lock_file = _open_lock(path)
        self._file: int | None = None
        self._position: tuple[_Segment | None, int] = None, 0  # file and bytes read of it
        try:
            for partial in path.glob(f".{_SETTINGS}.*"):  # left by a killed driver
                partial.unlink(missing_ok=True)
            if settings is not None:
                text = json.dumps(settings, indent=2) + "\n"
                write_atomically(path / _SETTINGS, text, on_disk=False)
            self.settings = self._read_settings() if settings is None else dict(settings)
            self._segments = _read_segments(path)
        except BaseException:
            os.close(self._lock_file)
            raise
        self.last = max((segment.last for segment in self._segments), default=0)
        """Number of the last update."""
        self.num_left = sum(segment.count for segment in self._segments)
        """Number of updates left by earlier processes."""

    def append(self, number: int, update: RunUpdate) -> None:
        """Write an update with a higher number than all before.

        Raises:
            OSError: The disk is full or fails; the spool is unchanged.
        """
        line = f'{{"n":{number},"update":{update.to_json()}}}'.encode()
        with self._mutex:
            file = self._file
            if file is None or self._segments[-1].size >= self._segment_bytes:
                file = self._start_segment(number)
            segment = self._segments[-1]
            append_line(file, line, segment.path)
            segment.size += len(line) + 1
            segment.last = self.last = number

    def read(self, after: int, limit: int) -> list[tuple[int, RunUpdate]]:
        """Return up to ``limit`` updates with numbers above ``after``, in order.

        ``after`` must not decrease from call to call.
        """
        updates: list[tuple[int, RunUpdate]] = []
        while len(updates) < limit:
            lines = self._lines(after, limit - len(updates))
            if not lines:
                break
            for line in lines:
                number = _number(line)
                if number <= after:
                    continue
                after = number
                with suppress(ValueError):  # skip a damaged line
                    updates.append((number, RunUpdate.from_json(_text(line))))
        return updates

    def discard_below(self, number: int) -> None:
        """Remove files whose updates all have lower numbers and so are delivered."""
        with self._mutex:
            while self._segments and self._segments[0].last < number:
                segment = self._segments[0]
                if self._file is not None and len(self._segments) == 1:
                    os.ftruncate(self._file, 0)
                    segment.size, self._position = 0, (None, 0)
                    return
                segment.path.unlink(missing_ok=True)
                del self._segments[0]

    def close(self) -> None:
        """Release the lock and remove an empty spool."""
        with self._mutex:
            if self._lock_file < 0:
                return
            if self._file is not None:
                os.close(self._file)
                self._file = None
            for segment in self._segments:
                if not segment.size:
                    segment.path.unlink(missing_ok=True)
            if not any(segment.size for segment in self._segments):
                with suppress(OSError):  # keep a folder with other files
                    (self.path / _SETTINGS).unlink(missing_ok=True)
                    (self.path / _LOCK).unlink(missing_ok=True)
                    self.path.rmdir()
            os.close(self._lock_file)
            self._lock_file = -1

    def _start_segment(self, number: int) -> int:
        """Start a file with the update of a number; return it, open."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        path = self.path / f"{number:012d}{_SUFFIX}"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
        self._file = os.open(path, flags, 0o666)
        self._segments.append(_Segment(path))
        return self._file

    def _lines(self, after: int, limit: int) -> list[bytes]:
        """Return the next complete lines of the first file with numbers above ``after``."""
        with self._mutex:
            for segment in self._segments:
                if segment.last <= after:
                    continue
                last_read, offset = self._position
                lines: list[bytes] = []
                with segment.path.open("rb") as file:
                    file.seek(offset if last_read is segment else 0)
                    while len(lines) < limit and file.tell() < segment.size:
                        lines.append(file.readline())
                    self._position = segment, file.tell()
                if lines:
                    return lines
        return []

    def _read_settings(self) -> dict[str, Any]:
        path = self.path / _SETTINGS
        try:
            settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return settings


def _open_lock(path: Path) -> int:
    """Lock the spool against other processes; return the open lock file."""
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # its last holder has just removed the folder
        try:
            lock_file(file)
        except BlockingIOError:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip()
            os.close(file)
            raise SweepConflictError(
                f"{path.parent} is in use by a sweep that is still running"
                f"{f' ({holder})' if holder else ''}: wait for it to end, or stop it first"
            ) from None
        except OSError:
            os.close(file)
            raise
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), (path / _LOCK).stat()):
                holder = f"process {os.getpid()} on {socket.gethostname()}"
                with suppress(OSError):  # only for the error message
                    os.ftruncate(file, 0)
                    os.pwrite(file, holder.encode(), 0)
                return file
        os.close(file)  # removed by its last holder


def _read_segments(folder: Path) -> list[_Segment]:
    segments = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        segment = _Segment(path)
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    _log.warning(
                        "%s ends in the middle of an entry: MLflow may lack its values, unless "
                        "they are reported again",
                        path,
                    )
                    break
                segment.size += len(line)
                segment.last = _number(line) or segment.last
                segment.count += 1
        if segment.last:
            segments.append(segment)
        else:
            path.unlink()
    return segments


def _number(line: bytes) -> int:
    """Return the number of a line's update; 0 if the line is damaged."""
    head = line[:40].partition(b",")[0]
    digits = head.removeprefix(b'{"n":')
    return int(digits) if digits != head and digits.isdigit() else 0


def _text(line: bytes) -> str:
    return line.decode().partition(',"update":')[2].removesuffix("}\n")
