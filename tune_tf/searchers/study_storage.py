"""Storage of an Optuna study: in memory, a database or a journal file of Optuna's."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.searchers.criteria import SearchCriteria

Storage = None | str | os.PathLike[str] | BaseStorage
"""Accepted forms of a storage."""

JOURNAL_SUFFIXES = (".journal", ".log")
"""How the names of journal files end."""

_JOURNAL = "journal:///"
_CONNECT_TIMEOUT_S = 10
_TIMEOUT_DRIVERS = ("psycopg", "psycopg2", "pymysql", "mysqldb")
"""Database drivers that know ``connect_timeout``, in seconds."""


def open_storage(storage: Storage) -> BaseStorage:
    """Open a study's storage.

    Args:
        storage: None for memory; a database URL such as ``sqlite:///optuna.db``; a journal file, as
            a path ending in ``.journal`` or ``.log`` or as ``journal:///path`` (four slashes for
            an absolute path); or an Optuna storage.

    Raises:
        InvalidSettingsError: It has none of these forms, or cannot be opened.
    """
    if storage is None:
        return InMemoryStorage()
    if isinstance(storage, BaseStorage):
        return optuna.storages.get_storage(storage)
    text = os.fspath(storage)
    if text.startswith(_JOURNAL) or ("://" not in text and text.endswith(JOURNAL_SUFFIXES)):
        return _open_journal(Path(text.removeprefix(_JOURNAL)))
    if "://" in text:
        return _open_database(text)
    raise InvalidSettingsError(
        f"storage {text!r} must be a database URL such as sqlite:///optuna.db, a journal "
        f"file ending in {' or '.join(JOURNAL_SUFFIXES)}, or journal:///path"
    )


def open_study(
    storage: BaseStorage, study_name: str | None, criteria: SearchCriteria
) -> optuna.Study:
    """Open the study of that name, or create it.

    Raises:
        SweepConflictError: The study exists with other objectives.
    """
    with quiet_logging():
        study = optuna.create_study(
            storage=storage,
            study_name=study_name,
            directions=criteria.directions,
            load_if_exists=True,
        )
    if not has_objectives(study, criteria):  # create_study silently keeps those that it has
        raise SweepConflictError(
            f"study {study_name!r} already exists with the objective {objective_text(study)}, not "
            f"{criteria}: use another study_name or its objective"
        )
    names = list(criteria.metrics)
    if study.metric_names != names:  # optuna-dashboard shows them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(names)
    return study


def has_objectives(study: optuna.Study, criteria: SearchCriteria) -> bool:
    """Return whether a study has these objectives, as far as it names them."""
    names = study.metric_names or list(criteria.metrics)
    return (study.directions, names) == (criteria.directions, list(criteria.metrics))


def objective_text(study: optuna.Study) -> str:
    """Return ``min loss, max accuracy``, or the directions alone if it names no metrics."""
    modes = [direction.name.lower()[:3] for direction in study.directions]
    if study.metric_names is None:
        return ", ".join(modes)
    return ", ".join(map(" ".join, zip(modes, study.metric_names, strict=True)))


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Suppress Optuna's informational log messages."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


@contextmanager
def clear_storage_errors(storage: Storage) -> Iterator[None]:
    """Convert database errors to one that names the storage and the remedy.

    Raises:
        SweepConflictError: The database does not respond, or another process has locked it.
    """
    from sqlalchemy.exc import SQLAlchemyError  # late: only databases need it

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise SweepConflictError(
            f"the study's storage {storage_label(storage)} is no longer available: "
            f"{_reason(error)}; the trials in it are safe: restore access, then go on"
        ) from error


def storage_label(storage: Storage) -> str:
    """Return a printable name of a storage, without a password."""
    if storage is None:
        return "in memory"
    if isinstance(storage, BaseStorage):
        url = getattr(storage, "url", None)
        return storage_label(url) if isinstance(url, str) else type(storage).__name__
    text = os.fspath(storage)
    if "://" in text and not text.startswith(_JOURNAL):
        from sqlalchemy.engine import make_url  # late: only databases need it
        from sqlalchemy.exc import ArgumentError

        try:
            return repr(make_url(text).render_as_string(hide_password=True))
        except (ArgumentError, ValueError):
            return "URL"
    return repr(text)


def create_private_file(path: Path) -> None:
    """Create a file that only the user may read and write, unless it exists."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def _open_journal(path: Path) -> BaseStorage:
    try:
        create_private_file(path)
        return JournalStorage(JournalFileBackend(str(path)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidSettingsError(
            f"storage {str(path)!r} cannot be opened as an Optuna journal: {error}"
        ) from error


def _open_database(url: str) -> BaseStorage:
    from sqlalchemy.engine import make_url  # late: only databases need it
    from sqlalchemy.exc import SQLAlchemyError

    try:
        parsed = make_url(url)
        settings: dict[str, Any] = {}
        if parsed.get_backend_name() == "sqlite":
            if parsed.database and parsed.database != ":memory:" and "uri" not in parsed.query:
                with suppress(OSError):  # the database's own error is clearer
                    create_private_file(Path(parsed.database))
        else:
            settings["pool_pre_ping"] = True  # reconnects to a restarted server
        if parsed.drivername.partition("+")[2] in _TIMEOUT_DRIVERS:
            settings["connect_args"] = {
                "connect_timeout": parsed.query.get("connect_timeout", _CONNECT_TIMEOUT_S)
            }
        return optuna.storages.get_storage(RDBStorage(url, engine_kwargs=settings))
    except (SQLAlchemyError, StorageInternalError, ImportError, RuntimeError, ValueError) as error:
        raise InvalidSettingsError(
            f"storage {storage_label(url)} cannot be opened as a database: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """Return the first line of a database error, with the remedy for a lock."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).partition("\n")[0]
    if "database is locked" in text:
        text += " by another process: end it, or use a database server for several writers"
    return text
