"""Guards around Tune's loop: free disk space, a broken workload, clear errors."""

import contextlib
import errno
import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.errors import (
    RAISED_AT,
    TuneTfError,
    UnwritableStorageError,
    WorkloadError,
)
from tune_tf.formatting import bytes_text
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tune_internals.trial_state import latest_result, trial_error

_log = logging.getLogger(__name__)

_CHECK_EVERY_S = 1.0
_REFUSAL = re.compile(rf"tune_tf\.errors\.WorkloadError: (.+?)(?:\n{RAISED_AT}|\Z)", re.DOTALL)
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNWRITABLE = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV})
_GONE = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOENT})
_MORE = 1.1  # hysteresis: free space to start trials again, as a multiple of the minimum


def free_bytes(path: Path) -> int:
    """Return the free bytes of a path's disk."""
    return shutil.disk_usage(path).free


class DiskGuard(tune.Callback):
    """Tune callback that starts no trial while disk space is low.

    Running trials continue, and new ones start again once space is free. Only disks of the driver's
    machine are checked. ``on_change`` receives the reason, or None once there is space;
    zero ``min_free_bytes`` are no limit.

    Attributes:
        interrupted: Whether Ctrl-C was pressed.
    """

    def __init__(
        self,
        min_free_bytes: int,
        folders: Iterable[Path],
        *,
        on_change: Callable[[str | None], None],
        free: Callable[[Path], int] = free_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interrupted = False
        self._min_free_bytes = min_free_bytes
        self._folders = tuple(dict.fromkeys(folders))
        self._on_change = on_change
        self._free = free
        self._clock = clock
        self._checked_s = float("-inf")
        self._reason: str | None = None
        self._handler: Any = None

    def setup(self, **info: Any) -> None:
        """Handle Ctrl-C at once: Tune acts on it only between its steps."""
        if threading.current_thread() is not threading.main_thread():
            return
        tunes = signal.getsignal(signal.SIGINT)

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, tunes)
            signal.raise_signal(signal.SIGINT)

        self._handler = (interrupt, tunes)
        signal.signal(signal.SIGINT, interrupt)

    def may_start(self) -> bool:
        """Return whether a new trial may start now."""
        if self._clock() - self._checked_s >= _CHECK_EVERY_S:
            self._checked_s = self._clock()
            self._check()
        return self._reason is None

    def on_step_end(self, **info: Any) -> None:
        """Check the disks, also while no trial is proposed."""
        self.may_start()

    def on_experiment_end(self, **info: Any) -> None:
        """Restore Tune's handler of Ctrl-C."""
        if self._handler and signal.getsignal(signal.SIGINT) is self._handler[0]:
            signal.signal(signal.SIGINT, self._handler[1])

    def _check(self) -> None:
        if not self._min_free_bytes:
            return
        reason = self._shortage()
        if reason and self._reason is None:
            _log.warning(
                "no new trial starts: %s. The sweep continues by itself once there is space", reason
            )
            with contextlib.suppress(OSError):  # the disk may be too full to record it
                self._on_change(reason)
        elif self._reason and not reason:
            _log.warning("there is space on the disk again: new trials start")
            self._on_change(None)
        self._reason = reason

    def _shortage(self) -> str | None:
        wanted = self._min_free_bytes * (1 if self._reason is None else _MORE)
        for path in self._folders:
            with contextlib.suppress(OSError):  # missing folder: writing to it will raise an error
                if (free := self._free(path)) < wanted:
                    limit = bytes_text(self._min_free_bytes)
                    return f"{bytes_text(free)} are free at {path}, and min_free_disk is {limit}"
        return None


class BrokenWorkloadCheck(tune.Callback):
    """Tune callback that ends a sweep if its first trials find the workload invalid.

    Tune must call the recorder first, as it raises.
    """

    def __init__(self) -> None:
        self._refusal: str | None = None

    def on_trial_error(self, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Note the WorkloadError of the trial's process, if no trial has reported."""
        if any(latest_result(other) for other in trials):
            return
        # Ray keeps only the text of an error in an actor's constructor.
        refusal = _REFUSAL.search(trial_error(trial))
        self._refusal = refusal[1].strip() if refusal else None

    def on_step_end(self, **info: Any) -> None:
        """Raise the WorkloadError."""
        if self._refusal is not None:
            raise WorkloadError(self._refusal)


@contextlib.contextmanager
def unwrap_tune_errors(folder: SweepFolder) -> Iterator[None]:
    """Raise the original error instead of the TuneError that quotes its traceback."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error.__context__ if isinstance(error, tune.TuneError) else error
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
            raise UnwritableStorageError(
                f"the disk is full: {cause}; free some space, then resume the sweep: tune-tf "
                f"resume {folder.path}"
            ) from error
        if isinstance(cause, OSError) and _is_unwritable(cause, folder.path):
            raise UnwritableStorageError(
                f"{folder.path} cannot be written to: {cause}; once it can, resume the sweep: "
                f"tune-tf resume {folder.path}"
            ) from error
        if isinstance(cause, TuneTfError) and cause is not error:
            raise cause from None
        raise


def _is_unwritable(error: OSError, folder: Path) -> bool:
    """Return whether an error says that a folder became read-only or was taken away."""
    if error.errno in _UNWRITABLE:
        return True
    path = str(error.filename or error)
    return (error.errno in _GONE or error.errno is None) and str(folder) in path
