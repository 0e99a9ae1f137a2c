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
        config: Values at the last start, nested.
        state: ``"pending"`` before its start or its continuation, ``"running"``, ``"paused"`` by
            the scheduler, or ``"ended"``.
        outcome: How it ended; None if it has not.
        cause: Why it ended, is paused or goes on, if known.
        started_s: First start.
        checkpoint_uri: URI of its last checkpoint, if that is in remote storage.
        checkpoints_removed: Whether its checkpoints were removed to save disk space.
        run_id: MLflow's id of its run, as far as known.
        last: Last result, without the config; empty before the first.
    """

    number: int
    trial_id: str
    config: Mapping[str, Any]
    state: str
    outcome: Outcome | None = None
    cause: str | None = None
    started_s: float | None = None
    ended_s: float | None = None
    run_id: str | None = None
    checkpoint_uri: str | None = None
    checkpoints_removed: bool = False
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    tested_s: float = 0.0
    last: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepHistory:
    """Sessions and trials of a sweep.

    Args:
        trials: By Tune's id, in order of number.
        run_id: MLflow's id of the sweep's parent run.
        environment: What the results of a reproducible sweep depend on besides its settings.
        reasons: Why they cannot be compared with those of another sweep.
    """

    sessions: tuple[Session, ...] = ()
    trials: Mapping[str, RecordedTrial] = field(default_factory=dict)
    run_id: str | None = None
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
                facts.get("run_id"),
                facts.get("environment", {}),
                tuple(facts.get("reasons", ())),
            )


def recorded_results(folder: Path, number: int) -> Sequence[Mapping[str, Any]]:
    """Return the results of a trial of a sweep's folder, in the order of their reports.

    An iteration that was repeated after a kill is there twice.
    """
    with _reading(folder) as database:
        if database is None:
            return []
        rows = _rows(database, _RESULTS, (number,))
        return [dict(json.loads(row["metrics"])) for row in rows]


_SESSIONS = "SELECT * FROM session ORDER BY number"
_FACTS = "SELECT * FROM fact"
_RESULTS = "SELECT metrics FROM result WHERE trial = ? ORDER BY number"
_TRIALS = """
SELECT trial.*, (
    SELECT metrics FROM result WHERE trial = trial.number ORDER BY result.number DESC LIMIT 1
) AS last FROM trial ORDER BY number
"""


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
    )


def _trial_of(row: dict[str, Any]) -> RecordedTrial:
    last = dict(json.loads(row["last"] or "{}"))
    return RecordedTrial(
        **row
        | {
            "config": dict(json.loads(row["config"])),
            "outcome": row["outcome"] and Outcome(row["outcome"]),
            "run_id": row["run_id"] or last.get(MLFLOW_RUN_ID),
            "checkpoints_removed": bool(row["checkpoints_removed"]),
            "test_metrics": dict(json.loads(row["test_metrics"])),
            "last": last,
        }
    )
