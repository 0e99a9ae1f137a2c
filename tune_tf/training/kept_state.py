"""State of the epoch that a trial keeps, in a checkpoint."""

from pathlib import Path
from typing import Final

KEPT_FOLDER: Final = "kept"
"""Folder in a checkpoint with the state of the best epoch, if that is not the last one."""


def kept_folder(checkpoint: Path) -> Path:
    """Return the folder with the state that a trial keeps: that of its last or its best epoch."""
    kept = checkpoint / KEPT_FOLDER
    return kept if kept.is_dir() else checkpoint
