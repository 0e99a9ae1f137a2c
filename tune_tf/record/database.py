"""The SQLite file that holds the record of a sweep."""

import contextlib
import errno
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from tune_tf.errors import SweepConflictError

RECORD: Final = "sweep.db"
"""Name of the file in a sweep's folder."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS session (
    number INTEGER PRIMARY KEY,
    begun_s REAL NOT NULL,
    last_s REAL NOT NULL,             -- last write
    process INTEGER NOT NULL,
    host TEXT NOT NULL,
    tune_tf TEXT NOT NULL,            -- version
    suspension TEXT,                  -- why no new trial starts
    ended_cleanly INTEGER NOT NULL DEFAULT 0,
    interrupted INTEGER NOT NULL DEFAULT 0,
    ended_early TEXT,
    missing_outputs TEXT NOT NULL DEFAULT '[]',
    fingerprint TEXT
);
CREATE TABLE IF NOT EXISTS trial (
    number INTEGER PRIMARY KEY,       -- in order of suggestion, from 0
    trial_id TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,             -- at the last start
    state TEXT NOT NULL,              -- pending, running, paused or ended
    outcome TEXT,
    cause TEXT,
    started_s REAL,                   -- first start
    ended_s REAL,
    run_id TEXT,                      -- MLflow's
    checkpoint_uri TEXT,              -- of the last checkpoint in remote storage
    checkpoints_removed INTEGER NOT NULL DEFAULT 0,
    test_metrics TEXT NOT NULL DEFAULT '{}',
    tested_s REAL NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS result (
    trial INTEGER NOT NULL,
    number INTEGER NOT NULL,          -- in order of the trial's reports, from 1
    metrics TEXT NOT NULL,            -- what the trial and Tune reported, without the config
    PRIMARY KEY (trial, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
"""
"""Times are seconds since 1970; configs, metrics, facts and requests are JSON."""

_BUSY_TIMEOUT_S: Final = 30.0
_CLOSING_TIMEOUT_MS: Final = 500
_ERRNO: Final = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY_DBMOVED": errno.ENOENT,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_IOERR": errno.EIO,
    "SQLITE_CANTOPEN": errno.ENOENT,
}
_OF_A_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.")
"""Beginnings of the names of file systems that several machines may share."""


def create_database(folder: Path) -> sqlite3.Connection:
    """Open the record of a sweep's folder to write to it, and create it if it is missing.

    Each statement is a transaction. Readers see whole ones, and a kill leaves whole ones.
    """
    with clear_database_errors(folder):
        database = _connect(folder, "rwc")
        if not _is_shared(folder):  # a write-ahead log needs memory that its readers share
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
        return database


def close_database(database: sqlite3.Connection) -> None:
    """Close the record after the last write, as one file that readers do not add others to."""
    with contextlib.suppress(sqlite3.Error):  # another process is reading
        database.execute(f"PRAGMA busy_timeout = {_CLOSING_TIMEOUT_MS}")
        database.execute("PRAGMA journal_mode = DELETE")
    database.close()


@contextlib.contextmanager
def reading_database(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the record of a sweep's folder to read it.

    Of a killed sweep in a folder that this process may not write to, a copy is read, as SQLite
    would have to complete or undo the last transaction first.
    """
    with clear_database_errors(folder), contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(contextlib.closing(_connect(folder, "ro")))
            database.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.OperationalError:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tune_tf-")))
            for path in folder.glob(f"{RECORD}*"):
                if not path.name.endswith("-shm"):  # an index of the log
                    shutil.copyfile(path, copy / path.name)
            database = stack.enter_context(contextlib.closing(_connect(copy, "rw")))
        yield database


@contextlib.contextmanager
def writing_database(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the record of another process's sweep for a request to it."""
    with (
        clear_database_errors(folder),
        contextlib.closing(_connect(folder, "rw")) as database,
    ):
        yield database


def _connect(folder: Path, mode: str) -> sqlite3.Connection:
    uri = f"{(folder / RECORD).absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, _BUSY_TIMEOUT_S, uri=True, isolation_level=None)
    database.row_factory = sqlite3.Row
    return database


@contextlib.contextmanager
def clear_database_errors(folder: Path) -> Iterator[None]:
    """Convert SQLite's errors.

    Raises:
        OSError: The disk is full, read-only or gone.
        SweepConflictError: The file is damaged, or another process has locked it for long.
    """
    path = folder / RECORD
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        number = next((it for key, it in _ERRNO.items() if name.startswith(key)), None)
        if number is not None:
            raise OSError(number, str(error), str(path)) from error
        raise SweepConflictError(
            f"{path}, the record of the sweep, cannot be read: {error}; restore it from a copy, or "
            "start another sweep"
        ) from error


def _is_shared(folder: Path) -> bool:
    """Return whether several machines may share a folder's file system."""
    path = folder.resolve()
    mounts = [it for it in psutil.disk_partitions(all=True) if path.is_relative_to(it.mountpoint)]
    kind = max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""
    return kind.startswith(_OF_A_NETWORK)
