"""Optuna's journal file, written without waiting for the disk, and mended when it is opened."""

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
    """A journal that every other Optuna process can read and write at the same time.

    Optuna waits for the disk at each of the dozen lines that a trial takes, in the loop that feeds
    all trials. Here a line is handed to the system whole, which keeps it when this process is
    killed; only the loss of power can take the last seconds, as with Ray Tune's own state.

    Args:
        path: The file; it is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = JournalFileSymlinkLock(str(path))
        super().__init__(str(path), lock_obj=self._writing)

    def repair(self) -> None:
        """Keep what is readable of a damaged journal, and say what is lost.

        Damaged lines go to a file beside the journal whose name ends in ``.damaged``.

        Raises:
            ValueError: Nothing is readable, or the entry that made a study is lost.
            OSError: The mended journal cannot be written; the damaged one stands as it was.
        """
        with self._alone():
            result = recover_journal(self._path.read_bytes())
            if result.damaged is None:
                return
            aside = self._path.with_name(f"{self._path.name}.damaged")
            with aside.open("ab") as file:
                file.write(result.damaged)
            mended = self._path.with_name(f"{self._path.name}.mended")
            with mended.open("wb") as file:
                file.write(result.text)
                file.flush()
                os.fsync(file.fileno())
            mended.chmod(self._path.stat().st_mode)
            mended.replace(self._path)
        _log.warning(
            "the study journal %s is damaged: %d entries are kept, %d lines could not be read and "
            "were moved to %s, %d trials lost their first entry and were made anew; a trial may "
            "lack parameters, values or its end",
            self._path,
            result.num_kept,
            result.num_damaged,
            aside,
            result.num_filled_in,
        )

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, one JSON text a line; all of them or, on a full disk, none.

        Raises:
            OSError: There is no room.
        """
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._alone(), self._path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if file.write(text) < len(text):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that every Optuna process takes before it writes."""
        self._writing.acquire()
        try:
            yield
        finally:
            self._writing.release()
