"""Files of a checkpoint on their way between processes, which may be on several nodes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_tf.errors import CheckpointError

Files = dict[str, bytes]
"""Files by name."""


def write_checkpoint_files(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """Write files in their order; a crash leaves each as it was or whole."""
    for name, content in files.items():
        partial = Path(folder, f".{name}.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(Path(folder, name))


def read_checkpoint_files(folder: Any) -> Files:
    """Return the files of a folder.

    Raises:
        CheckpointError: There is no folder.
    """
    try:
        return {
            path.name: path.read_bytes()
            for path in Path(folder).iterdir()
            if path.is_file() and not path.name.startswith(".")
        }
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {folder}") from None
