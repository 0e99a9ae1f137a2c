"""Checksummed archives of Tune's state: its four files of one moment.

Tune overwrites these files and copies them to the sweep's folder in a thread, so a kill or a power
loss may leave them truncated or of different ages.
"""

import io
import logging
import threading
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tune_tf.atomic_files import sync_folder, write_atomically

SNAPSHOTS: Final = "snapshots"
"""Name of the archives' folder in a sweep's folder."""

STATE_FILES: Final = (
    "experiment_state-*.json",
    "search_gen_state-*.json",
    "searcher-state-*.pkl",
    "callback-states-*.pkl",
)
"""Glob patterns of Tune's state files; Tune writes the last of them last."""

_SUFFIX = ".zip"
_NUM_KEPT = 2
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError)
_log = logging.getLogger(__name__)


def read_snapshot(path: Path) -> dict[str, bytes]:
    """Return Tune's files in an archive by name; raise ValueError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except _DAMAGE as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(files) != len(STATE_FILES):
        raise ValueError(f"{path} lacks files: it has {', '.join(sorted(files))}")
    return files


def snapshot_paths(folder: Path) -> list[Path]:
    """Return the archives of a sweep, newest first."""
    return sorted((folder / SNAPSHOTS).glob(f"*{_SUFFIX}"), reverse=True)


class SnapshotWriter:
    """Background writer of the archives of one session.

    The driver waits for the thread only at the end. A state that is superseded before it is
    written is skipped. A new archive is synced to disk before an old one is removed. ``kept`` is
    the intact archive that the session resumed from.

    Attributes:
        written: The ``needs`` of the newest state on disk; None before the first.
    """

    def __init__(self, folder: Path, snapshot: Path | None = None) -> None:
        self._folder = folder / SNAPSHOTS
        self._kept = [] if snapshot is None else [snapshot]
        self.written: Any = None
        self._waiting: tuple[Mapping[str, bytes], Any] | None = None
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def put(self, files: Mapping[str, bytes], needs: Any = None) -> None:
        """Queue a state; ``needs`` is the value of :attr:`written` once the state is on disk."""
        with self._mutex:
            self._waiting = files, needs
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tune_tf-snapshots")
                self._thread.start()

    def close(self) -> None:
        """Wait until the queued state is written."""
        if (thread := self._thread) is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._mutex:
                waiting, self._waiting = self._waiting, None
                if waiting is None:
                    self._thread = None
                    return
            try:
                self._write(waiting[0])
                self.written = waiting[1]
            except OSError as error:
                _log.warning("the sweep's state could not be saved: %s", error)

    def _write(self, files: Mapping[str, bytes]) -> None:
        self._folder.mkdir(exist_ok=True)
        stored = snapshot_paths(self._folder.parent)
        number = 1 + max((int(path.stem) for path in stored if path.stem.isdigit()), default=0)
        path = self._folder / f"{number:08d}{_SUFFIX}"
        archived = io.BytesIO()
        with zipfile.ZipFile(archived, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        for partial in self._folder.glob(f".*{_SUFFIX}.*"):  # left by a killed driver
            partial.unlink(missing_ok=True)
        write_atomically(path, archived.getvalue())
        sync_folder(self._folder)
        self._kept = [path, *self._kept][:_NUM_KEPT]
        for other in stored:
            if other not in self._kept:
                other.unlink(missing_ok=True)
