"""What the record of a sweep says of its sessions, trials and results."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import MLFLOW_RUN_ID, Outcome
from tune_tf.record.database import RECORD, reading_database


@dataclass(frozen=True)
class SweepFingerprint:
    """Digest of a reproducible sweep, and what it depends on besides the settings.

    Args:
        digest: Of all configs, results and outcomes, 16 hexadecimal digits.
        num_results: Number of these results.
        environment: Versions, device and reserved CPUs of a trial, by name.
        reasons: Why it cannot be compared with that of another run; empty if it can.
    """

    digest: str
    num_results: int
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the digest, with the reasons why it cannot be compared, if any."""
        reasons = "; ".join(self.reasons)
        return f"{self.digest}, not comparable: {reasons}" if reasons else self.digest

    @property
    def origin(self) -> str:
        """Text with the number of results and the environment."""
        environment = ", ".join(f"{name} {value}" for name, value in self.environment.items())
        return f"{self.num_results} results, with {environment}"


@dataclass(frozen=True)
class Session:
    """Period in which one process drove the sweep; times are seconds since 1970."""

    begun_s: float
    last_s: float  # last write
    process: int  # of the driver
    host: str
    ended_cleanly: bool = False  # without a crash
    interrupted: bool = False  # a resume would continue trials
    ended_early: str | None = None  # why the sweep ended before all its trials had
    missing_outputs: tuple[str, ...] = ()  # could not be written at the end; a resume tries again
    fingerprint: SweepFingerprint | None = None  # of a reproducible sweep so far, at the end
    suspension: str | None = None  # why no new trial starts
    budget: Mapping[str, Any] = field(default_factory=dict)
    time_s: float = 0.0  # that the sweep has taken by its end, as the next two
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    @property
    def driver(self) -> str:
        """Text like ``process 71 on node-1``."""
        return f"process {self.process} on {self.host}"


@dataclass(frozen=True)
class RecordedTrial:
    """A trial; times are seconds since 1970.

    Args:
        number: Position in the order of suggestion, from 0.
        trial_id: Ray Tune's id.
        name: Ray Tune's name of the trial.
        tag: Ray Tune's experiment tag.
        suggested: Config that the searcher suggested, nested.
        config: Config at the last start, which a scheduler may have changed.
        note: What the searcher's sampler noted with it.
        state: ``"pending"`` before its start or its continuation, ``"running"``, ``"paused"`` by
            the scheduler, or ``"ended"``.
        outcome: How it ended; None if it has not.
        cause: Why it ended, is paused or goes on, if known.
        failures: Number of restarts after failures, and the last failure.
        devices: What it reserves, such as ``2 CPU, 1 GPU``.
        resources: Arguments of the resource request, if that is not the trainable's.
        exploits: Number of times that it copied another trial's weights.
        cloned_from: Id of the trial that it copied last.
        error: Text of its last failure, if it failed.
        started_s: First start.
        checkpoints: Paths of its checkpoints in the sweep's storage, oldest first; the last may lie
            in another trial's folder.
        checkpoints_removed: Whether its checkpoints were removed to save disk space.
        run_id: MLflow's id of its run, as far as known.
        last: Last result, without the config; empty before the first.
    """

    number: int
    trial_id: str
    name: str
    tag: str
    suggested: Mapping[str, Any]
    config: Mapping[str, Any]
    note: Mapping[str, Any]
    state: str
    outcome: Outcome | None = None
    cause: str | None = None
    failures: int = 0
    devices: str | None = None
    resources: Mapping[str, Any] | None = None
    exploits: int = 0
    cloned_from: str | None = None
    error: str | None = None
    started_s: float | None = None
    ended_s: float | None = None
    run_id: str | None = None
    checkpoints: tuple[str, ...] = ()
    checkpoints_removed: bool = False
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    tested_s: float = 0.0
    last: Mapping[str, Any] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended for good."""
        return self.outcome in (None, Outcome.INTERRUPTED)


@dataclass(frozen=True)
class RecordedResult:
    """Result of a trial.

    Args:
        metrics: What the trial and Tune reported, without the config.
        time_s: When, in seconds since 1970.
        config: The trial's config, nested, if it is another one than that of the result before.
        exploits: Number of times that the trial had copied another trial's weights.
    """

    metrics: Mapping[str, Any]
    time_s: float
    config: Mapping[str, Any] | None = None
    exploits: int = 0


@dataclass(frozen=True)
class SweepHistory:
    """Sessions and trials of a sweep.

    Args:
        trials: By Tune's id, in order of number.
        num_results: Number of results of all trials, with repeated ones.
        run_id: MLflow's id of the sweep's parent run.
        dataset: Fields of MLflow's ``Dataset``, if the data are known.
        earlier: Results of earlier sweeps that a warm start has read; None if it has not.
        environment: What the results of a reproducible sweep depend on besides its settings.
        reasons: Why they cannot be compared with those of another sweep.
    """

    sessions: tuple[Session, ...] = ()
    trials: Mapping[str, RecordedTrial] = field(default_factory=dict)
    num_results: int = 0
    run_id: str | None = None
    dataset: Mapping[str, str] | None = None
    earlier: Sequence[Mapping[str, Any]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the record of a sweep's folder; that of a sweep that never began is empty.

        Raises:
            SweepConflictError: It is damaged.
        """
        with _reading(folder) as database:
            if database is None:
                return cls()
            facts = {row["name"]: json.loads(row["value"]) for row in _rows(database, _FACTS)}
            trials = map(_trial_of, _rows(database, _TRIALS))
            return cls(
                tuple(map(_session_of, _rows(database, _SESSIONS))),
                {trial.trial_id: trial for trial in trials},
                sum(row["number"] for row in _rows(database, _NUM_RESULTS)),
                facts.get("run_id"),
                facts.get("dataset"),
                facts.get("earlier"),
                facts.get("environment", {}),
                tuple(facts.get("reasons", ())),
            )

    @classmethod
    def changes(cls, folder: Path, since_s: float) -> Self:
        """Read the sessions and, of the trials, those that are not ended for long.

        That are those that go on, and those that ended, or were tested, at that time or later.
        """
        with _reading(folder) as database:
            if database is None:
                return cls()
            trials = map(_trial_of, _rows(database, _CHANGED_TRIALS, (since_s,)))
            return cls(
                tuple(map(_session_of, _rows(database, _SESSIONS))),
                {trial.trial_id: trial for trial in trials},
            )


def recorded_results(folder: Path, number: int) -> Sequence[Mapping[str, Any]]:
    """Return the metrics of a trial's results, in the order of their reports.

    An iteration that was repeated after a kill is there twice.
    """
    return [result.metrics for result in trial_results(folder, number)]


def trial_results(folder: Path, number: int, after: int = 0) -> Sequence[RecordedResult]:
    """Return the results of a trial after so many, in the order of their reports."""
    with _reading(folder) as database:
        rows = _rows(database, _RESULTS, (number, after)) if database else ()
        return [
            RecordedResult(
                dict(json.loads(row["metrics"])),
                float(row["time_s"]),
                row["config"] and dict(json.loads(row["config"])),
                int(row["exploits"]),
            )
            for row in rows
        ]


def trials_with_checkpoints(folder: Path) -> Sequence[RecordedTrial]:
    """Return the trials that have checkpoints, in order of number."""
    with _reading(folder) as database:
        rows = _rows(database, _TRIALS_WITH_CHECKPOINTS) if database else ()
        return [*map(_trial_of, rows)]


def recorded_checkpoints(folder: Path, number: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the results that a trial's checkpoints belong to by path, newest first.

    The paths are those in the sweep's storage, such as ``trial_00003/checkpoint_000004``.
    """
    with _reading(folder) as database:
        rows = _rows(database, _CHECKPOINTS, (number,)) if database else ()
        return {row["path"]: dict(json.loads(row["metrics"])) for row in rows}


def recorded_pickle(folder: Path, name: str) -> bytes | None:
    """Return the pickle of a name, which only a resume reads; None if there is none."""
    with _reading(folder) as database:
        rows = list(_rows(database, _PICKLE, (name,))) if database else []
        return bytes(rows[0]["content"]) if rows else None


_SESSIONS = "SELECT * FROM session ORDER BY number"
_NUM_RESULTS = "SELECT count(*) AS number FROM result"
_FACTS = "SELECT * FROM fact"
_RESULTS = "SELECT * FROM result WHERE trial = ? AND number > ? ORDER BY number"
_CHECKPOINTS = "SELECT path, metrics FROM checkpoint WHERE trial = ? ORDER BY number DESC"
_PICKLE = "SELECT content FROM pickle WHERE name = ?"
_TRIAL_ROWS = """
SELECT trial.*, (
    SELECT metrics FROM result WHERE trial = trial.number ORDER BY result.number DESC LIMIT 1
) AS last, (
    SELECT json_group_array(path) FROM (
        SELECT path FROM checkpoint WHERE trial = trial.number ORDER BY checkpoint.number
    )
) AS checkpoints FROM trial
"""
_TRIALS = f"{_TRIAL_ROWS} ORDER BY number"
_CHANGED_TRIALS = (
    f"{_TRIAL_ROWS} WHERE outcome IS NULL OR max(coalesce(ended_s, 0), tested_s) >= ? "
    "ORDER BY number"
)
_TRIALS_WITH_CHECKPOINTS = (
    f"{_TRIAL_ROWS} WHERE number IN (SELECT trial FROM checkpoint) ORDER BY number"  # noqa: S608
)


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection | None]:
    with reading_database(folder) as database:
        try:
            yield database
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SweepConflictError(
                f"{folder / RECORD}, the record of the sweep, is damaged: {error}; restore it from "
                "a copy, or start another sweep"
            ) from error


def _rows(
    database: sqlite3.Connection, query: str, values: Sequence[Any] = ()
) -> Iterator[dict[str, Any]]:
    # All at once: a row that raises would leave the file locked.
    return map(dict, database.execute(query, values).fetchall())


def _session_of(row: dict[str, Any]) -> Session:
    fingerprint = row["fingerprint"] and json.loads(row["fingerprint"])
    return Session(
        begun_s=float(row["begun_s"]),
        last_s=float(row["last_s"]),
        process=int(row["process"]),
        host=str(row["host"]),
        ended_cleanly=bool(row["ended_cleanly"]),
        interrupted=bool(row["interrupted"]),
        ended_early=row["ended_early"],
        missing_outputs=tuple(json.loads(row["missing_outputs"])),
        fingerprint=SweepFingerprint(**fingerprint | {"reasons": tuple(fingerprint["reasons"])})
        if fingerprint
        else None,
        suspension=row["suspension"],
        budget=dict(json.loads(row["budget"])),
        time_s=float(row["time_s"]),
        cpu_hours=float(row["cpu_hours"]),
        gpu_hours=float(row["gpu_hours"]),
    )


def _trial_of(row: dict[str, Any]) -> RecordedTrial:
    last = dict(json.loads(row["last"] or "{}"))
    return RecordedTrial(
        **row
        | {
            "config": dict(json.loads(row["config"])),
            "resources": row["resources"] and dict(json.loads(row["resources"])),
            "note": dict(json.loads(row["note"])),
            "suggested": dict(json.loads(row["suggested"])),
            "checkpoints": tuple(json.loads(row["checkpoints"])),
            "outcome": row["outcome"] and Outcome(row["outcome"]),
            "run_id": row["run_id"] or last.get(MLFLOW_RUN_ID),
            "checkpoints_removed": bool(row["checkpoints_removed"]),
            "test_metrics": dict(json.loads(row["test_metrics"])),
            "last": last,
        }
    )
