"""The SQLite file that holds the record of a sweep."""

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from tune_tf.errors import SweepConflictError
from tune_tf.version import __version__

RECORD: Final = "sweep.db"
"""Name of the file in a sweep's folder."""

_LAYOUT: Final = 2
"""Number of the layout of the tables; 0 is that of a file without any."""

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
PRAGMA user_version = {_LAYOUT};
CREATE TABLE IF NOT EXISTS session (
    number INTEGER PRIMARY KEY,
    begun_s REAL NOT NULL,
    last_s REAL NOT NULL,             -- last write
    process INTEGER NOT NULL,
    host TEXT NOT NULL,
    tune_tf TEXT NOT NULL,            -- version
    budget TEXT NOT NULL DEFAULT '{{}}',
    time_s REAL NOT NULL DEFAULT 0,   -- with earlier sessions, as the next two
    cpu_hours REAL NOT NULL DEFAULT 0,
    gpu_hours REAL NOT NULL DEFAULT 0,
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
    name TEXT NOT NULL,               -- Tune's
    tag TEXT NOT NULL,                -- Tune's experiment tag
    suggested TEXT NOT NULL,          -- config of the searcher
    note TEXT NOT NULL,               -- what its sampler noted with it
    config TEXT NOT NULL,             -- at the last start
    state TEXT NOT NULL,              -- pending, running, paused or ended
    failures INTEGER NOT NULL DEFAULT 0,
    devices TEXT,                     -- what it reserves
    resources TEXT,                   -- its request, if that is not the trainable's
    exploits INTEGER NOT NULL DEFAULT 0,  -- copies of another trial's weights
    cloned_from TEXT,                 -- id of the last such trial
    error TEXT,
    outcome TEXT,
    cause TEXT,
    started_s REAL,                   -- first start
    ended_s REAL,
    run_id TEXT,                      -- MLflow's
    checkpoints_removed INTEGER NOT NULL DEFAULT 0,
    test_metrics TEXT NOT NULL DEFAULT '{{}}',
    tested_s REAL NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS result (
    trial INTEGER NOT NULL,
    number INTEGER NOT NULL,          -- in order of the trial's reports, from 1
    time_s REAL NOT NULL,
    metrics TEXT NOT NULL,            -- what the trial and Tune reported, without the config
    config TEXT,                      -- NULL if it is that of the result before
    exploits INTEGER NOT NULL DEFAULT 0,  -- of the trial so far
    PRIMARY KEY (trial, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoint (
    number INTEGER PRIMARY KEY,       -- the highest of a trial's is its newest
    trial INTEGER NOT NULL,
    path TEXT NOT NULL,               -- in the sweep's storage; of another trial in a clone
    metrics TEXT NOT NULL             -- the result that it belongs to
);
CREATE INDEX IF NOT EXISTS checkpoint_of_trial ON checkpoint (trial);
CREATE TABLE IF NOT EXISTS pickle (name TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
COMMIT;
"""
"""Times are seconds since 1970; configs, metrics, facts and requests are JSON."""

_BUSY_TIMEOUT_S: Final = 30.0
_CLOSING_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.1
_LOCKED: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_ERRNO: Final = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY_DBMOVED": errno.ENOENT,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_IOERR_WRITE": errno.EDQUOT,  # a quota, most often; SQLite does not tell
    "SQLITE_IOERR": errno.EIO,
    "SQLITE_CANTOPEN": errno.ENOENT,
}
_OF_A_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.")
"""Beginnings of the names of file systems that several machines may share."""


def create_database(folder: Path) -> sqlite3.Connection:
    """Open the record of a sweep's folder to write to it, and create it if it is missing.

    Each statement is a transaction. Readers see whole ones, and a kill leaves whole ones.

    Raises:
        OSError: The disk is full, read-only or gone.
        SweepConflictError: The file is damaged, locked, of another layout, or another user's.
    """
    with clear_database_errors(folder):
        try:
            os.close(os.open(folder / RECORD, os.O_RDWR | os.O_CREAT, 0o666))  # SQLite's is 0o644
        except PermissionError as error:
            raise SweepConflictError(
                f"{folder / RECORD}, the record of the sweep, cannot be written to: "
                f"{error.strerror}; its owner can continue the sweep"
            ) from error
        database = _connect(folder, "rw")
        _check_layout(database, folder)
        if not _is_shared(folder):  # a write-ahead log needs memory that its readers share
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_SCHEMA)
        return database


def close_database(database: sqlite3.Connection) -> None:
    """Close the record after the last write, as one file that readers do not add others to."""
    for _ in range(_CLOSING_ATTEMPTS):
        try:
            database.execute("PRAGMA journal_mode = DELETE")
            break
        except sqlite3.Error:  # another process is reading
            time.sleep(_PAUSE_S)
    database.close()


@contextlib.contextmanager
def reading_database(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the record of a sweep's folder to read it as of one moment; None before it has begun.

    Of a killed sweep in a folder that this process may not write to, a copy is read, as SQLite
    would have to complete or undo the last transaction first.
    """
    if not (folder / RECORD).is_file():
        yield None
        return
    with _conflicts(folder), clear_database_errors(folder), contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(contextlib.closing(_connect(folder, "ro")))
            database.execute("BEGIN")
            layout = _check_layout(database, folder)
        except sqlite3.OperationalError:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tune_tf-")))
            for path in folder.glob(f"{RECORD}*"):
                if not path.name.endswith("-shm"):  # an index of the log
                    shutil.copyfile(path, copy / path.name)
            database = stack.enter_context(contextlib.closing(_connect(copy, "rw")))
            layout = _check_layout(database, folder)
        yield database if layout else None


@contextlib.contextmanager
def writing_database(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the record of another process's sweep for a request to it."""
    with (
        _conflicts(folder),
        clear_database_errors(folder),
        contextlib.closing(_connect(folder, "rw")) as database,
    ):
        yield database


@contextlib.contextmanager
def _conflicts(folder: Path) -> Iterator[None]:
    """Convert an OSError for those who look at a sweep, or ask its driver for something."""
    try:
        yield
    except OSError as error:
        raise SweepConflictError(
            f"{folder / RECORD}, the record of the sweep, cannot be opened: {error}; its owner can"
        ) from error


def _check_layout(database: sqlite3.Connection, folder: Path) -> int:
    """Return the number of a file's layout, 0 without tables; refuse one of another version."""
    (layout,) = database.execute("PRAGMA user_version").fetchone()
    if layout not in (0, _LAYOUT):
        kind = "a newer" if layout > _LAYOUT else "an older"
        raise SweepConflictError(
            f"{folder / RECORD} was written by {kind} tune_tf than this {__version__}: use that one"
        )
    return int(layout)


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
        is_locked = name.startswith(_LOCKED)
        remedy = (
            "end the process that has locked it, then resume the sweep"
            if is_locked
            else "restore it from a copy, or start another sweep"
        )
        raise SweepConflictError(
            f"{path}, the record of the sweep, cannot be read: {error}; {remedy}"
        ) from error


def _is_shared(folder: Path) -> bool:
    """Return whether several machines may share a folder's file system."""
    path = folder.resolve()
    mounts = [it for it in psutil.disk_partitions(all=True) if path.is_relative_to(it.mountpoint)]
    kind = max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""
    return kind.startswith(_OF_A_NETWORK)
