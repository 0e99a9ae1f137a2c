"""Files that a crash or a full disk leaves whole."""

import errno
import os
from pathlib import Path


def write_whole(path: Path, text: str, *, on_disk: bool = True) -> None:
    """Write a file in one step: a crash leaves the old one or the new one, never a part.

    Args:
        path: The file.
        text: All of it.
        on_disk: Whether to wait for the disk, so that the loss of power leaves no part either.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        if on_disk:
            os.fsync(file.fileno())
    partial.replace(path)


def append_line(file: int, line: bytes, path: Path) -> None:
    """Append a line in one step, after a torn one on a line of its own.

    Args:
        file: The open file; readable, and each write goes to its end.
        line: The line without its end.
        path: The file, for the error.

    Raises:
        OSError: There is no room; the file is as it was.
    """
    data = line + b"\n"
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        data = b"\n" + data  # a kill or a full disk has torn the line before
    if os.write(file, data) < len(data):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
