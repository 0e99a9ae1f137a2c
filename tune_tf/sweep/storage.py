"""Storage of a sweep's checkpoints, local or remote."""

import contextlib
import json
import os
import re
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pyarrow import ArrowException, fs

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, UnwritableStorageError
from tune_tf.ranking import KEPT_FOLDER, KEPT_INDEX
from tune_tf.remote_storage import CheckpointLocation, join_uri

_CHECKPOINT = re.compile(r"checkpoint_\d+")
_DAMAGE = (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile)
"""Errors from reading damaged files; a NotImplementedError is a RuntimeError."""


@dataclass(frozen=True)
class SweepStorage:
    """Local folder of a sweep, or its prefix below a remote ``storage_path``.

    Paths are file system paths, as in Tune's objects: ``/sweeps/mine/trial_00003``, or
    ``bucket/sweeps/mine/trial_00003`` in an object store.
    """

    filesystem: fs.FileSystem
    root: str  # path of the sweep
    uri: str | None = None  # of the sweep; None for a local folder
    keeps_best: bool = False  # whether each checkpoint has what its trial keeps

    @classmethod
    def of(cls, folder: Path, config: SweepConfig) -> "SweepStorage":
        """Return the storage of a sweep; raise InvalidSettingsError if it cannot be reached."""
        keeps_best = config.keep == "best"
        if config.remote_storage is None:
            return cls(fs.LocalFileSystem(), str(folder), keeps_best=keeps_best)
        uri = join_uri(config.remote_storage, folder.name)
        filesystem, root = _connect_filesystem(uri)
        return cls(filesystem, root, uri, keeps_best)

    def path(self, *names: str | Path) -> str:
        """Join names to the sweep's path."""
        return "/".join([self.root, *map(str, names)])

    def relative(self, path: str) -> str:
        """Return a path relative to the sweep's."""
        return path.removeprefix(f"{self.root}/")

    def location(self, path: str) -> CheckpointLocation:
        """Return the local path or URI of a path in this storage."""
        return Path(path) if self.uri is None else join_uri(self.uri, self.relative(path))

    def checkpoints(self, trial: str) -> list[str]:
        """Return the paths of the checkpoints below a trial's path, oldest first."""
        entries = self.filesystem.get_file_info(fs.FileSelector(trial, allow_not_found=True))
        return sorted(
            entry.path
            for entry in entries
            if _CHECKPOINT.fullmatch(entry.base_name) and not entry.is_file
        )

    def remove_checkpoint(self, path: str) -> None:
        """Remove a checkpoint, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(path)

    def is_intact(self, path: str, *, thoroughly: bool = False) -> bool:
        """Return whether a checkpoint is complete; ``thoroughly`` verifies all checksums.

        Raises:
            UnwritableStorageError: A remote storage does not answer.
        """
        try:
            entries = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        except OSError as error:
            self._check_answers(error)
            return False
        files = [entry for entry in entries if not entry.base_name.startswith(".")]
        return (
            bool(files)
            and all(self._is_file_intact(each, thoroughly=thoroughly) for each in files)
            and not (self.keeps_best and self._lacks_best(path, {each.path for each in files}))
        )

    def _lacks_best(self, path: str, files: Collection[str]) -> bool:
        """Return whether a kill has cut off the state of the best epoch of an intact checkpoint."""
        if f"{path}/{KEPT_INDEX}" not in files:
            return True
        with self._open(f"{path}/{KEPT_INDEX}") as opened:
            names = json.load(opened)["files"]
        return any(f"{path}/{KEPT_FOLDER}/{name}" not in files for name in names)

    def _is_file_intact(self, file: fs.FileInfo, *, thoroughly: bool) -> bool:
        try:
            if file.base_name.endswith(".npz"):
                with self._open(file.path) as opened, zipfile.ZipFile(opened) as archive:
                    return not thoroughly or archive.testzip() is None
            if file.base_name.endswith(".json"):
                with self._open(file.path) as opened:
                    json.load(opened)
        except _DAMAGE as error:
            self._check_answers(error)
            return False
        return not file.is_file or bool(file.size)

    def _check_answers(self, error: Exception) -> None:
        """Raise for an error that says nothing of a file: a remote storage does not answer."""
        if self.uri and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise UnwritableStorageError(
                f"{self.uri} cannot be read: {error}; once it can, resume the sweep"
            ) from error

    def _open(self, path: str) -> IO[bytes]:
        opened: Any = self.filesystem.open_input_file(path)
        return opened


def check_storage(config: SweepConfig, folder: Path | None = None) -> None:
    """Raise InvalidSettingsError if ``storage_path``, or the folder of a sweep, is not writable."""
    if config.remote_storage is None:
        _check_folder(folder or config.sweeps_path)
        return
    filesystem, root = _connect_filesystem(config.remote_storage)
    try:
        filesystem.create_dir(root)
    except OSError as error:
        raise InvalidSettingsError(
            f"storage_path {config.remote_storage!r} cannot be written to: {error}"
        ) from error


def _check_folder(path: Path) -> None:
    """Raise InvalidSettingsError if a folder cannot be written to or created."""
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        kind = "not writable" if existing.is_dir() else "not a folder"
        raise InvalidSettingsError(
            f"storage_path: {path} cannot hold sweeps: {existing} is {kind}; name another folder"
        )


def _connect_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (ArrowException, OSError, ValueError) as error:
        raise InvalidSettingsError(
            f"storage_path: pyarrow cannot reach {uri!r}: {error}; write a folder, or a URI such "
            "as s3://bucket/sweeps"
        ) from error
    return filesystem, root.rstrip("/")
