"""Lock by which one process drives a sweep, and others see that it does."""

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Final

from tune_tf.atomic_files import lock_file
from tune_tf.errors import SweepConflictError, UnwritableStorageError

_LOCK: Final = ".driver-lock"
_ATTEMPTS: Final = 20  # has_driver in another process takes the lock briefly
_PAUSE_S: Final = 0.05
_LONGEST_NAME: Final = 500


def take_driver_lock(folder: Path) -> int:
    """Lock a sweep's folder for this process; return the open file that holds the lock.

    The system releases the lock when the process ends in any way. The file names the process.

    Raises:
        SweepConflictError: Another process drives the sweep, or the folder is another user's.
        UnwritableStorageError: The file system has no locks.
    """
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError as error:
        raise SweepConflictError(
            f"{folder} cannot be written to: {error.strerror}; its owner can continue the sweep"
        ) from error
    for _ in range(_ATTEMPTS):
        try:
            lock_file(file)
            with contextlib.suppress(OSError):  # the disk is full
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return file
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError as error:
            os.close(file)
            raise UnwritableStorageError(
                f"{folder} cannot be locked: {error.strerror}; choose a storage_path on a file "
                "system with locks"
            ) from error
    driver = os.pread(file, _LONGEST_NAME, 0).decode(errors="replace")
    os.close(file)
    raise SweepConflictError(
        f"{folder} is in use by a sweep that is still running ({driver}): wait for it to end, or "
        "stop it first"
    )


def has_driver(folder: Path) -> bool:
    """Return whether a live process drives the sweep."""
    try:
        file = os.open(folder / _LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        lock_file(file, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False
