"""Writer of a sweep's record, and requests to it."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from tune_tf.outcome import Outcome
from tune_tf.record.database import (
    RECORD,
    clear_database_errors,
    close_database,
    create_database,
    writing_database,
)
from tune_tf.record.driver_lock import take_driver_lock
from tune_tf.record.history import SweepFingerprint, SweepHistory
from tune_tf.version import __version__


class Record:
    """Writer of a sweep's record for its driver; a context manager that holds the sweep's lock.

    A session begins with :meth:`begin_session`. What a method has recorded is there for other
    processes at once, and after a crash; but between :meth:`begin_step` and :meth:`end_step` all is
    recorded together at the end.

    Raises:
        SweepConflictError: Another process drives the sweep, or the record is damaged.
        OSError: The disk is full, read-only or gone; any method may raise that.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._clock = clock
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._is_in_step = self._has_session = False
        self._last_request = 0
        self._last_s = 0.0
        self._lock = take_driver_lock(folder)
        try:
            self._database = create_database(folder)
            with clear_database_errors(folder):
                # The lock is visible: later ones are for this one.
                self._database.execute("DELETE FROM request WHERE content LIKE '%\"stop\"%'")
                query = "SELECT coalesce(max(CAST(last_s AS REAL)), 0) FROM session"
                self._last_s = float(self._database.execute(query).fetchone()[0])
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the record."""
        self.close()

    def close(self) -> None:
        """Close the record, and release the lock."""
        try:
            close_database(self._database)
        finally:
            os.close(self._lock)

    def begin_session(self, budget: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Record the start of a session: trials that have not ended wait for their continuation."""
        now = self._now()
        self._has_session = True
        self.begin_step()
        self._write(
            "INSERT INTO session (begun_s, last_s, process, host, tune_tf, budget, time_s, "
            "cpu_hours, gpu_hours) SELECT ?, ?, ?, ?, ?, ?, coalesce(max(time_s), 0), "
            "coalesce(max(cpu_hours), 0), coalesce(max(gpu_hours), 0) FROM session",
            *(now, now, os.getpid(), socket.gethostname(), __version__, _json(dict(budget))),
        )
        self._write(
            "UPDATE trial SET state = iif(state = 'paused', state, 'pending'), outcome = NULL, "
            "ended_s = NULL, cause = NULL WHERE outcome IS NULL OR outcome = ?",
            Outcome.INTERRUPTED.value,
        )
        self.end_step()
        return self

    def begin_step(self) -> None:
        """Record from now on what belongs together."""
        self._is_in_step = True

    def end_step(self) -> None:
        """Record in one transaction all since :meth:`begin_step`."""
        self._is_in_step = False
        self._commit()

    @property
    def history(self) -> SweepHistory:
        """What is recorded."""
        return SweepHistory.read(self.folder)

    def record_parent_run(self, run_id: str) -> None:
        """Record MLflow's id of the sweep's parent run."""
        self._put_fact("run_id", run_id)

    def record_run_ids(self, run_ids: Mapping[str, str]) -> None:
        """Record MLflow's ids of the runs of trials, by trial id."""
        self.begin_step()
        for trial_id, run_id in run_ids.items():
            self._change_trial(trial_id, run_id=run_id)
        self.end_step()

    def record_dataset(self, dataset: Mapping[str, str] | None) -> None:
        """Record the fields of MLflow's ``Dataset``, if the data are known."""
        self._put_fact("dataset", dataset)

    def record_missing_outputs(self, missing_outputs: Sequence[str]) -> None:
        """Record what could not be written at the end of a session."""
        self._change_session(missing_outputs=_json(list(missing_outputs)))

    def forget_trials(self, trial_ids: Iterable[str]) -> None:
        """Delete trials that Tune has forgotten, as after a kill."""
        for trial_id in trial_ids:
            number = "(SELECT number FROM trial WHERE trial_id = ?)"
            for table in ("result", "checkpoint"):
                self._write(f"DELETE FROM {table} WHERE trial = {number}", trial_id)  # noqa: S608
            self._write("DELETE FROM trial WHERE trial_id = ?", trial_id)

    def record_environment(self, environment: Mapping[str, str], reasons: Sequence[str]) -> None:
        """Record what the results of this session depend on, and why they are not comparable."""
        self._put_fact("environment", dict(environment))
        self._put_fact("reasons", list(reasons))

    def record_earlier_results(self, earlier: Sequence[Mapping[str, Any]]) -> None:
        """Record what a warm start has read, as a resume may not find its source any more."""
        self._put_fact("earlier", list(earlier))

    def record_creation(
        self,
        trial_id: str,
        number: int,
        config: Mapping[str, Any],
        *,
        name: str,
        tag: str,
        note: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Record a trial that waits for its first start."""
        suggested = _json(config)
        self._write(
            "INSERT OR IGNORE INTO trial "
            "(trial_id, number, name, tag, suggested, config, note, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')",
            *(trial_id, number, name, tag, suggested, suggested, _json(dict(note))),
        )

    def record_start(
        self,
        trial_id: str,
        config: Mapping[str, Any],
        *,
        devices: str,
        resources: Mapping[str, Any] | None = None,
        cause: str | None = None,
    ) -> None:
        """Record that a trial starts or continues, and why."""
        self._change_trial(
            trial_id,
            config=_json(config),
            devices=devices,
            resources=resources and _json(resources),
            state="running",
            outcome=None,
            cause=cause,
            ended_s=None,
            checkpoints_removed=False,
            test_metrics="{}",
        )
        self._write(
            "UPDATE trial SET started_s = coalesce(started_s, ?) WHERE trial_id = ?",
            *(self._now(), trial_id),
        )

    def record_clone(
        self, trial_id: str, config: Mapping[str, Any], exploits: int, cloned_from: str
    ) -> None:
        """Record that a trial continues with another's weights, and how often it has done so."""
        self._change_trial(
            trial_id, config=_json(config), exploits=exploits, cloned_from=cloned_from
        )

    def record_progress(self, trial_id: str, *, tag: str, failures: int) -> None:
        """Record Tune's experiment tag of a trial, and how often it has failed."""
        self._change_trial(trial_id, tag=tag, failures=failures)

    def record_result(
        self,
        number: int,
        result: Mapping[str, Any],
        config: Mapping[str, Any] | None = None,
        exploits: int = 0,
    ) -> None:
        """Record a result of a trial, as in :class:`~tune_tf.record.RecordedResult`."""
        metrics = {name: value for name, value in result.items() if name != "config"}
        changed = None if config is None else _json(config)
        self._write(
            "INSERT INTO result SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ?, ? FROM result "
            "WHERE trial = ?",
            *(number, self._now(), _json(metrics), changed, exploits, number),
        )

    def record_pause(self, trial_id: str, cause: str | None = None) -> None:
        """Record that the scheduler has paused a trial, and why."""
        self._change_trial(trial_id, state="paused", cause=cause)

    def record_waiting(self, trial_id: str) -> None:
        """Record that a trial waits for its continuation."""
        self._change_trial(trial_id, state="pending")

    def record_end(
        self,
        trial_id: str,
        outcome: Outcome,
        cause: str | None = None,
        error: str | None = None,
    ) -> None:
        """Record the end of a trial, which may not have started; one that is paused stays paused.

        An interrupted one goes on in the next session.
        """
        self._change_trial(
            trial_id, outcome=outcome.value, cause=cause, error=error, ended_s=self._now()
        )
        kept = "paused" if outcome is Outcome.INTERRUPTED else ""
        self._write(
            "UPDATE trial SET state = 'ended' WHERE trial_id = ? AND state != ?", trial_id, kept
        )

    def record_checkpoint(self, number: int, path: str, result: Mapping[str, Any]) -> None:
        """Record a trial's newest checkpoint, by its path in the sweep's storage.

        ``result`` is the one that it belongs to.
        """
        metrics = {name: value for name, value in result.items() if name != "config"}
        self._write(
            "INSERT INTO checkpoint (trial, path, metrics) VALUES (?, ?, ?)",
            *(number, path, _json(metrics)),
        )

    def forget_checkpoints(self, paths: Iterable[str]) -> None:
        """Delete what is recorded of checkpoints that are about to be removed."""
        for path in paths:
            self._write("DELETE FROM checkpoint WHERE path = ?", path)

    def record_checkpoint_removal(self, trial_id: str) -> None:
        """Record that the checkpoints of an ended trial were removed to save disk space."""
        self._change_trial(trial_id, checkpoints_removed=True)

    def record_pickle(self, name: str, content: bytes) -> None:
        """Record the state of a part that only a resume reads."""
        self._write("INSERT OR REPLACE INTO pickle VALUES (?, ?)", name, content)

    def record_end_reason(self, reason: str) -> None:
        """Record why the sweep ends before all its trials have."""
        self._change_session(ended_early=reason)

    def record_spending(self, time_s: float, cpu_hours: float, gpu_hours: float) -> None:
        """Record what the sweep has taken so far, with earlier sessions."""
        self._change_session(time_s=time_s, cpu_hours=cpu_hours, gpu_hours=gpu_hours)

    def record_test(self, trial_id: str, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an ended trial's model on the test rows."""
        self._change_trial(trial_id, test_metrics=_json(metrics), tested_s=self._now())

    def record_suspension(self, reason: str | None) -> None:
        """Record that no new trial starts for now, and why; None if they start again."""
        self._change_session(suspension=reason)

    def record_session_end(
        self,
        *,
        interrupted: bool,
        run_ids: Mapping[str, str] = MappingProxyType({}),
        ended_early: str | None = None,
        missing_outputs: Sequence[str] = (),
        fingerprint: SweepFingerprint | None = None,
    ) -> None:
        """Record the end of the session, as in :class:`Session`, and MLflow's ids of its runs."""
        self.record_run_ids(run_ids)
        self._put_fact("reasons", fingerprint.reasons if fingerprint else ())
        self._change_session(
            ended_cleanly=True,
            interrupted=interrupted,
            ended_early=ended_early,
            missing_outputs=_json(list(missing_outputs)),
            fingerprint=fingerprint and _json(asdict(fingerprint)),
        )

    def take_requests(self) -> list[dict[str, Any]]:
        """Return the new requests of other processes, the oldest first.

        Those for trials stay, as a resume has to carry them out, too. Raises FileNotFoundError if
        the record was moved away, which SQLite does not notice.
        """
        (self.folder / RECORD).stat()
        with clear_database_errors(self.folder):
            query = "SELECT * FROM request WHERE number > ? ORDER BY number"
            rows = self._database.execute(query, (self._last_request,)).fetchall()
        if rows:
            self._last_request = rows[-1]["number"]
        return [json.loads(row["content"]) for row in rows]

    def _now(self) -> float:
        """Return the time, or the last recorded one if the machine's clock was set back."""
        self._last_s = max(self._last_s, self._clock())
        return self._last_s

    def _put_fact(self, name: str, value: Any) -> None:
        self._write("INSERT OR REPLACE INTO fact VALUES (?, ?)", name, _json(value))

    def _change_trial(self, trial_id: str, **columns: Any) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns)
        self._write(f"UPDATE trial SET {changes} WHERE trial_id = ?", *columns.values(), trial_id)  # noqa: S608

    def _change_session(self, **columns: Any) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns)
        last = "WHERE number = (SELECT max(number) FROM session)"
        self._write(f"UPDATE session SET {changes} {last}", *columns.values())  # noqa: S608

    def _write(self, statement: str, *values: Any) -> None:
        """Carry out a statement at the end of the step, or at once outside of one."""
        self._waiting.append((statement, tuple(map(_storable, values))))
        if not self._is_in_step:
            self._commit()

    def _commit(self) -> None:
        """Carry out what waits in one transaction, and note the time of the session's last write.

        If it cannot be carried out, it goes on waiting.
        """
        if not self._waiting:
            return
        now = self._now()
        with clear_database_errors(self.folder), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for statement, values in self._waiting:
                database.execute(statement, values)
            if self._has_session:  # else the sweep does not go on
                last = "(SELECT max(number) FROM session)"
                database.execute(f"UPDATE session SET last_s = ? WHERE number = {last}", (now,))  # noqa: S608
        self._waiting.clear()


def post_request(folder: Path, request: Mapping[str, Any]) -> None:
    """Ask the driver of a sweep for something."""
    with writing_database(folder) as database:
        database.execute("INSERT INTO request (content) VALUES (?)", (_json(request),))


def _storable(value: Any) -> Any:
    """Return a text without undecodable bytes, and anything else as it is."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({str(name): _json_or_text(each) for name, each in value.items()})


def _json_or_text(value: Any) -> Any:
    """Return a value, or its text where JSON cannot hold it, such as keys that are no texts."""
    try:
        json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def recorded_form(value: Any) -> Any:
    """Return what a record gives back of a value of a config."""
    return json.loads(_json({"": value}))[""]


def _plain(value: Any) -> Any:
    """Return a value of NumPy as Python's own, a class or function by name, and others as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    name = getattr(value, "__qualname__", None)
    return str(value) if name is None else f"{value.__module__}.{name}"
