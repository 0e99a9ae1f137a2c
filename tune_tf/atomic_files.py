"""Atomic writes: a crash or a full disk leaves no partial file."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, text: str, *, on_disk: bool = True) -> None:
    """Write a file atomically: a crash leaves the old file or the new one.

    Args:
        path: The file.
        text: Its content.
        on_disk: Whether to sync to disk, so that a power failure leaves no partial file either.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        if on_disk:
            os.fsync(file.fileno())
    partial.replace(path)


def append_line(file: int, line: bytes, path: Path) -> None:
    """Append a line atomically; after a partial line, start a new one.

    Args:
        file: Descriptor of a file opened for reading and appending.
        line: The line, without newline.
        path: The file, for the error.

    Raises:
        OSError: The disk is full; the file is unchanged.
    """
    data = line + b"\n"
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # a crash or a full disk truncated the last line
    if os.write(file, data) < len(data):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces a file or folder once it is complete."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
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
