"""Optuna's journal file, written without waiting for the disk."""

import errno
import json
import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock


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

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, one JSON text a line; all of them or, on a full disk, none.

        Raises:
            OSError: There is no room.
        """
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        self._writing.acquire()
        try:
            with self._path.open("ab", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                if file.write(text) < len(text):
                    file.truncate(before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            self._writing.release()
