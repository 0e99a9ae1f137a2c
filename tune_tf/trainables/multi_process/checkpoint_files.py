"""Checkpoint files as bytes, for transfer between processes and nodes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_tf.errors import CheckpointError

Files = dict[str, bytes]
"""File contents by name."""


def write_checkpoint_files(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """Write files in order, each atomically."""
    for name, content in files.items():
        partial = Path(folder, f".{name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(Path(folder, name))


def read_checkpoint_files(folder: Any) -> Files:
    """Return the files of a folder.

    Raises:
        CheckpointError: The folder is missing.
    """
    try:
        return {
            path.name: path.read_bytes()
            for path in Path(folder).iterdir()
            if path.is_file() and not path.name.startswith(".")
        }
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {folder}") from None
