"""Atomic writes and locks of files: a crash or a full disk leaves no partial file."""

import contextlib
import errno
import fcntl
import functools
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)


def write_atomically(path: Path, content: str | bytes, *, on_disk: bool = True) -> None:
    """Write a file atomically, text as UTF-8: a crash or an OSError leaves the old file.

    ``on_disk`` syncs it to disk, so that a power failure leaves no partial file either.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            if isinstance(content, str):
                content = content.encode(errors="backslashreplace")  # undecodable names of files
            file.write(content)
            file.flush()
            if on_disk:
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        if partial.is_file():
            partial.unlink()
        raise


def append_line(file: int, line: bytes, path: Path) -> None:
    """Append a line atomically, on a new line; on a full disk raise OSError, the file unchanged."""
    data = line + b"\n"
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # a crash or a full disk truncated the last line
    if os.write(file, data) < len(data):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def parse_json(text: bytes) -> Any:
    """Parse JSON; raise ValueError also for deep nesting and integers that are no float."""
    try:
        return _DECODER.decode(text.decode())
    except (RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _float_sized(digits: str) -> int:
    number = int(digits)
    float(number)
    return number


_DECODER = json.JSONDecoder(parse_int=_float_sized)


@functools.lru_cache(1000)
def warn_of_damage(path: Path, text: str) -> None:
    """Warn of a damaged file, once a process."""
    _log.warning("%s %s", path, text)


def lock_file(file: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed, or its process has ended in any way.

    Raises:
        BlockingIOError: Another process holds the lock.
        OSError: Its file system has no locks.
    """
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk, so that a power failure loses no new file."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces a file or folder once it is complete."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        if path.is_dir():
            shutil.rmtree(path)
        partial.replace(path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
