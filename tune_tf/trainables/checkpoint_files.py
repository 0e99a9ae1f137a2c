"""Files of checkpoints, for transfer between processes and nodes."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import CheckpointError

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
        raise CheckpointError(f"there is no checkpoint at {folder}") from None


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
