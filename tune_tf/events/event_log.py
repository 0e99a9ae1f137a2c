"""A sweep's diary: who drives it, and which trials began and ended how, a line an event.

It is what others read while the sweep runs and after it was killed, so it is plain JSON, appended
to and never rewritten. Whoever drives the sweep holds the file; the system gives it free when that
process ends, however it ends.
"""

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tune_tf.atomic_files import append_line
from tune_tf.errors import SweepConflictError
from tune_tf.events.control_channel import ControlChannel
from tune_tf.events.event_history import EVENT_LOG, EventHistory
from tune_tf.outcome import Outcome
from tune_tf.version import __version__

_log = logging.getLogger(__name__)
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS})
_ATTEMPTS = 20  # one who looks whether the diary is held holds it for an instant
_PAUSE_S = 0.05


class EventLog:
    """The diary as the driver of the sweep writes it; use it in a ``with``.

    Args:
        folder: The sweep's folder.
        clock: Seconds since 1970.

    Raises:
        SweepConflictError: Another process drives the sweep.
        OSError: The file cannot be made or written to.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / EVENT_LOG
        self._clock = clock
        self._file = _hold(self._path)
        ControlChannel(folder).clear()  # at once: from now on others see that the sweep is driven

    def __enter__(self) -> Self:
        """Note that the sweep begins, or goes on."""
        self._write("begun", process=os.getpid(), host=socket.gethostname(), tune_tf=__version__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the diary free."""
        os.close(self._file)

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return self._path.parent

    @property
    def pages(self) -> EventHistory:
        """What it holds so far."""
        return EventHistory.of(self._path.parent)

    def tracked(self, run_id: str) -> None:
        """Note MLflow's id of the sweep's parent run."""
        self._write("tracked", run_id=run_id)

    def created(self, trial_id: str, number: int, config: Mapping[str, Any]) -> None:
        """Note that a trial waits for its first start."""
        self._write("created", trial_id=trial_id, number=number, config=config)

    def started(self, trial_id: str, number: int, config: Mapping[str, Any]) -> None:
        """Note that a trial starts, or goes on."""
        self._write("started", trial_id=trial_id, number=number, config=config)

    def paused(self, trial_id: str) -> None:
        """Note that the scheduler lets a trial wait."""
        self._write("paused", trial_id=trial_id)

    def ended(
        self,
        trial_id: str,
        number: int,
        config: Mapping[str, Any],
        outcome: Outcome,
        cause: str | None = None,
        last: Mapping[str, Any] | None = None,
    ) -> None:
        """Note that a trial has ended.

        Args:
            trial_id: Ray Tune's id.
            number: Place in the order of proposal, from 0.
            config: Its sampled values; a trial may end that never started.
            outcome: How it ended.
            cause: Why, where there is more to say.
            last: Its last result without the config, which tells whether ``result.json`` is whole.
        """
        self._write(
            "ended",
            trial_id=trial_id,
            number=number,
            config=config,
            outcome=outcome.value,
            cause=cause,
            last=last or {},
        )

    def removed_checkpoints(self, trial_id: str) -> None:
        """Note that the checkpoints of a trial that has ended are removed, to keep the disk free.

        Args:
            trial_id: Ray Tune's id.
        """
        self._write("removed", trial_id=trial_id)

    def held(self, why: str) -> None:
        """Note that no new trial starts for a while.

        Args:
            why: What is wanting.
        """
        self._write("held", why=why)

    def went_on(self) -> None:
        """Note that new trials start again."""
        self._write("went on")

    def changed(self, changes: Mapping[str, str]) -> None:
        """Note that the sweep goes on with other settings.

        Args:
            changes: ``old -> new`` by the setting's dotted path.
        """
        self._write("changed", settings=dict(changes))

    def over(
        self,
        *,
        interrupted: bool,
        run_ids: Mapping[str, str],
        ended_early: str | None = None,
        left: Sequence[str] = (),
    ) -> None:
        """Note that the sweep is over.

        Args:
            interrupted: Whether a resume would go on with it.
            run_ids: MLflow's ids of the trials' runs, by Tune's id.
            ended_early: Why it ended before all its trials had; None if it did not.
            left: What could not be written down, for a resume to try again.
        """
        self._write(
            "over",
            interrupted=interrupted,
            run_ids=dict(run_ids),
            ended_early=ended_early,
            left=list(left),
        )
        with suppress(OSError):
            os.fsync(self._file)

    def _write(self, event: str, **about: Any) -> None:
        line = json.dumps({"at": self._clock(), "event": event, **about}, default=str)
        append_line(self._file, line.encode(), self._path)


def has_driver(folder: Path) -> bool:
    """Return whether a process that runs drives the sweep, as far as the system can tell."""
    try:
        file = os.open(folder / EVENT_LOG, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system that knows no locks
        return seems_to_have_driver(folder)
    finally:
        os.close(file)
    return False


def seems_to_have_driver(folder: Path) -> bool:
    """Return whether a sweep seems to be driven, where the file system knows no locks.

    Who began last and did not come to an end drives it, if that process runs on this machine; that
    of another machine cannot be seen, and is not taken to run.
    """
    sessions = EventHistory.of(folder).sessions
    if not sessions or sessions[-1].over or sessions[-1].host != socket.gethostname():
        return False
    process = sessions[-1].process
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs, and is another user's
    return True


def _hold(path: Path) -> int:
    """Return the open file, held against other drivers."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(file)
                raise
            if seems_to_have_driver(path.parent):
                break
            _log.warning(
                "%s is on a file system without locks: do not drive it from two processes%s",
                path.parent,
                _holder(path.parent, ", the last one was {}"),
            )
            return file
        else:
            return file
    os.close(file)
    raise SweepConflictError(
        f"{path.parent} is in use by a sweep that is still running"
        f"{_holder(path.parent, ' ({})')}: wait for its end, or end it first"
    )


def _holder(folder: Path, text: str) -> str:
    """Return a text with who drives a sweep, or did so last; empty if that is not known."""
    sessions = EventHistory.of(folder).sessions
    return text.format(sessions[-1].driver) if sessions else ""
