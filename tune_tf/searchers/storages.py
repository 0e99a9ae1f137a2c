"""Where Optuna keeps a study: in memory, in a database or in a journal file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.study import StudyDirection

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.searchers.journal import JournalFile

Storage = None | str | os.PathLike[str] | BaseStorage
"""What a storage can be given as."""

_JOURNAL = "journal:///"
_JOURNAL_SUFFIXES = (".journal", ".log")


def open_storage(storage: Storage) -> BaseStorage:
    """Open where a study is kept.

    Args:
        storage: None for memory; a database URL such as ``sqlite:///optuna.db``; a journal file, as
            a path ending in ``.journal`` or ``.log`` or as ``journal:///path`` (four slashes for
            an absolute path); or a storage of Optuna's.

    Raises:
        InvalidSettingsError: It is of none of these forms, or cannot be opened.
    """
    if storage is None:
        return InMemoryStorage()
    if isinstance(storage, BaseStorage):
        return storage
    text = os.fspath(storage)
    if text.startswith(_JOURNAL) or ("://" not in text and text.endswith(_JOURNAL_SUFFIXES)):
        return _open_journal(Path(text.removeprefix(_JOURNAL)))
    if "://" in text:
        return _open_database(text)
    raise InvalidSettingsError(
        [
            (
                f"storage {text!r} must be a database URL such as sqlite:///optuna.db, a journal "
                f"file ending in {' or '.join(_JOURNAL_SUFFIXES)}, or journal:///path"
            )
        ]
    )


def open_study(storage: BaseStorage, study_name: str | None, objective: Objective) -> optuna.Study:
    """Open the study of that name, or make it.

    Raises:
        SweepConflictError: The study is there and optimises in another direction.
    """
    direction = StudyDirection.MAXIMIZE if objective.mode == "max" else StudyDirection.MINIMIZE
    with _without_announcements():
        study = optuna.create_study(
            storage=storage, study_name=study_name, direction=direction, load_if_exists=True
        )
    # create_study silently keeps the direction that a study was made with.
    if study.directions != [direction]:
        found = " and ".join(found.name.lower() for found in study.directions)
        raise SweepConflictError(
            f"study {study_name!r} is there already and was made to {found}, but mode "
            f"{objective.mode!r} of {objective.metric!r} means to {direction.name.lower()}: give "
            "another study_name, or another mode"
        )
    return study


@contextmanager
def _without_announcements() -> Iterator[None]:
    """Keep Optuna from announcing a study, which users of Tune did not ask for."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _open_journal(path: Path) -> BaseStorage:
    try:
        return JournalStorage(JournalFile(path))
    except (OSError, ValueError) as error:
        raise InvalidSettingsError(
            [f"storage {str(path)!r} cannot be opened as an Optuna journal: {error}"]
        ) from error


def _open_database(url: str) -> BaseStorage:
    from sqlalchemy.exc import SQLAlchemyError  # late: only databases need it

    try:
        return RDBStorage(url)
    except (SQLAlchemyError, ImportError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        raise InvalidSettingsError(
            [f"storage {url!r} cannot be opened as a database: {first_line}"]
        ) from error
