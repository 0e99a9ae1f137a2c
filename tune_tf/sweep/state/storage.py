"""Storage of a sweep's state and checkpoints, local or remote."""

import contextlib
import fnmatch
import json
import os
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from pyarrow import ArrowException, fs

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.ranking import KEPT_FOLDER, KEPT_INDEX
from tune_tf.remote_storage import CheckpointLocation, join_uri

_TRIAL = "trial.npz"  # as in tune_tf.training.checkpoint, which would load Keras
_HEAD = "head"
_CHECKPOINT = "checkpoint_*"
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

    def files(self, pattern: str) -> list[str]:
        """Return the sorted names of the sweep's files that match a pattern."""
        return [entry.base_name for entry in self._entries(self.root, pattern) if entry.is_file]

    def read(self, name: str) -> bytes:
        """Read a file of the sweep."""
        with self.filesystem.open_input_stream(self.path(name), compression=None) as file:
            content: bytes = file.read()
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the sweep atomically."""
        partial = self.path(f".{name}.partial")
        with self.filesystem.open_output_stream(partial, compression=None) as file:
            file.write(content)
        self.filesystem.move(partial, self.path(name))

    def remove(self, name: str) -> None:
        """Remove a file of the sweep."""
        self.filesystem.delete_file(self.path(name))

    def checkpoints(self, trial: str) -> list[str]:
        """Return the paths of the checkpoints below a trial's path, oldest first."""
        return [entry.path for entry in self._entries(trial, _CHECKPOINT)]

    def _entries(self, folder: str, pattern: str) -> list[fs.FileInfo]:
        """Return the matching entries of a folder, if it exists, sorted by name."""
        entries = self.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        matching = (each for each in entries if fnmatch.fnmatchcase(each.base_name, pattern))
        return sorted(matching, key=lambda entry: entry.base_name)

    def remove_checkpoint(self, path: str) -> None:
        """Remove a checkpoint, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(path)

    def is_intact(self, path: str, *, thoroughly: bool = False) -> bool:
        """Return whether a checkpoint is complete; ``thoroughly`` verifies all checksums."""
        try:
            entries = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        except OSError:
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

    def iteration_of(self, path: str) -> int | None:
        """Return the iteration of a checkpoint; None if it cannot be read."""
        try:
            with self._open(f"{path}/{_TRIAL}") as file, np.load(file) as archive:
                return int(json.loads(str(archive[_HEAD]))["epoch"])
        except _DAMAGE:
            return None

    def _is_file_intact(self, file: fs.FileInfo, *, thoroughly: bool) -> bool:
        try:
            if file.base_name.endswith(".npz"):
                with self._open(file.path) as opened, zipfile.ZipFile(opened) as archive:
                    return not thoroughly or archive.testzip() is None
            if file.base_name.endswith(".json"):
                with self._open(file.path) as opened:
                    json.load(opened)
        except _DAMAGE:
            return False
        return not file.is_file or bool(file.size)

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
