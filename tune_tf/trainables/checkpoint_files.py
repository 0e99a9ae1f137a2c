"""Files of checkpoints, for transfer between processes and nodes."""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import DamagedCheckpointError

if TYPE_CHECKING:
    from tune_tf.training.checkpoint import Checkpoint

Files = dict[str, bytes]
"""Checkpoint files by name."""


def write_checkpoint_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files in order, each atomically."""
    for name, content in files.items():
        write_atomically(folder / name, content, on_disk=False)


def read_checkpoint_files(folder: Path) -> Files:
    """Return the files of a checkpoint's folder."""
    try:
        return {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.is_file() and not path.name.startswith(".")
        }
    except FileNotFoundError:
        raise DamagedCheckpointError(f"there is no checkpoint at {folder}") from None


def saved_epoch(folder: Path) -> int:
    """Return the number of finished epochs of a checkpoint, and verify all checksums.

    Raises:
        DamagedCheckpointError: It is missing or truncated.
    """
    epochs = []
    try:
        for path in folder.rglob("*.json"):
            json.loads(path.read_bytes())
        for path in folder.rglob("*.npz"):
            with np.load(path, allow_pickle=False) as archive:
                if archive.zip.testzip() is not None:
                    raise DamagedCheckpointError(f"{path} is damaged")
                if path.parent == folder:
                    epochs.append(int(json.loads(str(archive["head"]))["epoch"]))
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedCheckpointError(f"{folder} is no complete checkpoint: {error}") from error
    if not epochs:
        raise DamagedCheckpointError(f"there is no checkpoint at {folder}")
    return max(epochs)


def files_of(checkpoint: "Checkpoint") -> Files:
    """Return the files of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(Path(folder))
        return read_checkpoint_files(Path(folder))


def checkpoint_of(files: Files) -> "Checkpoint":
    """Return the checkpoint stored in files."""
    from tune_tf.training.checkpoint import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint_files(Path(folder), files)
        return Checkpoint.read(Path(folder))
