"""Event log of a sweep, which also locks it for its driver, and requests to the driver."""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tune_tf.atomic_files import append_line, lock_file, write_atomically
from tune_tf.errors import SweepConflictError
from tune_tf.events.event_history import EVENT_LOG, EventHistory, SweepFingerprint
from tune_tf.outcome import Outcome
from tune_tf.version import __version__

_FOLDER = "requests"
_SUFFIX = ".request"  # Tune would copy .json files
_log = logging.getLogger(__name__)
_ATTEMPTS = 20  # has_driver in another process takes the lock briefly
_PAUSE_S = 0.05


class EventLog:
    """Writer of a sweep's event log for its driver; a context manager that holds the lock.

    Other processes read it during the sweep and after a crash, so it is append-only, with one JSON
    event per line. Raises SweepConflictError if another process drives the sweep.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._path = folder / EVENT_LOG
        self._clock = clock
        self._file = _open_locked(self._path)
        ControlChannel(folder).clear()  # the lock is visible: later requests are for this driver

    def __enter__(self) -> Self:
        """Record the start of a session."""
        self._write("begun", process=os.getpid(), host=socket.gethostname(), tune_tf=__version__)
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        os.close(self._file)

    @property
    def history(self) -> EventHistory:
        """The recorded events."""
        return EventHistory.read(self.folder)

    def record_parent_run(self, run_id: str) -> None:
        """Record MLflow's id of the sweep's parent run."""
        self._write("tracked", run_id=run_id)

    def record_environment(self, environment: Mapping[str, str], reasons: Sequence[str]) -> None:
        """Record what the results of this session depend on, and why they are not comparable."""
        self._write("environment", environment=dict(environment), reasons=list(reasons))

    def record_creation(self, trial_id: str, number: int, config: Mapping[str, Any]) -> None:
        """Record that a trial waits for its first start."""
        self._write("created", trial_id=trial_id, number=number, config=config)

    def record_start(
        self, trial_id: str, number: int, config: Mapping[str, Any], cause: str | None = None
    ) -> None:
        """Record that a trial starts or continues, and why."""
        self._write("started", trial_id=trial_id, number=number, config=config, cause=cause)

    def record_pause(self, trial_id: str, cause: str | None = None) -> None:
        """Record that the scheduler pauses a trial, and why."""
        self._write("paused", trial_id=trial_id, cause=cause)

    def record_end(
        self,
        trial_id: str,
        number: int,
        config: Mapping[str, Any],
        outcome: Outcome,
        cause: str | None = None,
        last: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the end of a trial.

        The ``config`` is recorded because a trial can end without a start; the ``last`` result,
        without config, serves to validate ``result.json``.
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

    def record_test(self, trial_id: str, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an ended trial's model on the test rows."""
        self._write("tested", trial_id=trial_id, metrics=dict(metrics))

    def record_checkpoint_removal(self, trial_id: str) -> None:
        """Record that the checkpoints of an ended trial were removed to save disk space."""
        self._write("removed", trial_id=trial_id)

    def record_suspension(self, reason: str) -> None:
        """Record that no new trial starts for now."""
        self._write("suspended", why=reason)

    def record_resumption(self) -> None:
        """Record that new trials start again."""
        self._write("resumed")

    def record_session_end(
        self,
        *,
        interrupted: bool,
        run_ids: Mapping[str, str],
        ended_early: str | None = None,
        missing_outputs: Sequence[str] = (),
        fingerprint: SweepFingerprint | None = None,
    ) -> None:
        """Record the end of the session, as in :class:`Session`, and flush the log to disk."""
        self._write(
            "over",
            interrupted=interrupted,
            run_ids=dict(run_ids),
            ended_early=ended_early,
            left=list(missing_outputs),
            fingerprint=fingerprint and asdict(fingerprint),
        )
        with suppress(OSError):
            os.fsync(self._file)

    def _write(self, event: str, **values: Any) -> None:
        line = json.dumps({"at": self._clock(), "event": event, **values}, default=str)
        append_line(self._file, line.encode(), self._path)


def has_driver(folder: Path) -> bool:
    """Return whether a live process drives the sweep, as far as the system can tell."""
    try:
        file = os.open(folder / EVENT_LOG, os.O_RDONLY)
    except OSError:
        return False
    try:
        has_locks = lock_file(file, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        has_locks = False
    finally:
        os.close(file)
    return not has_locks and _last_driver_lives(folder)


def _last_driver_lives(folder: Path) -> bool:
    """Return whether the last session is open and its process runs, for file systems without locks.

    A process on another machine is invisible and regarded as ended.
    """
    sessions = EventHistory.read(folder).sessions
    if not sessions or sessions[-1].ended_cleanly or sessions[-1].host != socket.gethostname():
        return False
    process = sessions[-1].process
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it belongs to another user
    return True


def _open_locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    for _ in range(_ATTEMPTS):
        try:
            has_locks = lock_file(file)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
            continue
        except OSError:
            os.close(file)
            raise
        if not has_locks:
            if _last_driver_lives(path.parent):
                break
            _log.warning(
                "%s is on a file system without locks: do not run it from two processes%s",
                path.parent,
                _holder(path.parent, ", the last one was {}"),
            )
        return file
    os.close(file)
    raise SweepConflictError(
        f"{path.parent} is in use by a sweep that is still running"
        f"{_holder(path.parent, ' ({})')}: wait for it to end, or stop it first"
    )


def _holder(folder: Path, text: str) -> str:
    """Return ``text`` with the last driver filled in; empty if there is none."""
    sessions = EventHistory.read(folder).sessions
    return text.format(sessions[-1].driver) if sessions else ""


class ControlChannel:
    """Requests to the driver of a sweep, one file each in the sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FOLDER

    def post(self, request: Mapping[str, Any]) -> None:
        """Write a request atomically."""
        self._path.mkdir(exist_ok=True)
        path = self._path / f"{time.time_ns()}-{os.getpid()}{_SUFFIX}"
        write_atomically(path, json.dumps(request), on_disk=False)

    def take(self) -> Iterator[dict[str, Any]]:
        """Yield and remove the pending requests, the oldest first."""
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            request = None
            with suppress(OSError, ValueError):
                request = json.loads(path.read_text(encoding="utf-8"))
            path.unlink(missing_ok=True)
            if isinstance(request, dict):
                yield request

    def clear(self) -> None:
        """Remove all requests, which are for an earlier driver."""
        for _ in self.take():
            pass
