"""Optuna journal file without disk synchronisation, repaired when it is opened."""

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from tune_tf.searchers.storage.journal_recovery import recover_journal

_log = logging.getLogger(__name__)


class JournalFile(JournalFileBackend):
    """Journal that other Optuna processes can read and write concurrently.

    Optuna synchronises the disk for each of the dozen lines of a trial, in the loop that feeds all
    trials. Here a line is written in one call and survives a kill of this process; only a power
    failure can lose the last seconds, as with Ray Tune's own state.

    Args:
        path: The file; it is created if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = JournalFileSymlinkLock(str(path))
        super().__init__(str(path), lock_obj=self._writing)

    def repair(self) -> None:
        """Keep the readable entries of a damaged journal, and log what is lost.

        Damaged lines are moved to a file beside the journal whose name ends in ``.damaged``.

        Raises:
            ValueError: Nothing is readable, or the entry that created a study is lost.
            OSError: The repaired journal cannot be written; the damaged one is unchanged.
        """
        with self._alone():
            result = recover_journal(self._path.read_bytes())
            if result.damaged is None:
                return
            aside = self._path.with_name(f"{self._path.name}.damaged")
            with aside.open("ab") as file:
                file.write(result.damaged)
            repaired = self._path.with_name(f"{self._path.name}.repaired")
            with repaired.open("wb") as file:
                file.write(result.text)
                file.flush()
                os.fsync(file.fileno())
            repaired.chmod(self._path.stat().st_mode)
            repaired.replace(self._path)
        _log.warning(
            "the study journal %s is damaged: %d entries are kept, %d unreadable lines moved to "
            "%s, %d trials lost their first entry and were created again; trials may lack "
            "parameters, values or outcomes",
            self._path,
            result.num_kept,
            result.num_damaged,
            aside,
            result.num_filled_in,
        )

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, one JSON text per line; all of them or, on a full disk, none.

        Raises:
            OSError: The disk is full.
        """
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._alone(), self._path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if file.write(text) < len(text):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that every Optuna process takes before writing."""
        self._writing.acquire()
        try:
            yield
        finally:
            self._writing.release()
