"""State of the epoch that a trial keeps, in a checkpoint."""

from pathlib import Path
from typing import Final

KEPT_FOLDER: Final = "kept"
"""Folder in a checkpoint with the state of the best epoch, if that is not the last one."""

KEPT_INDEX: Final = "kept.json"
"""File in each checkpoint of a trial that keeps its best epoch: its metrics and its files."""


def kept_folder(checkpoint: Path) -> Path:
    """Return the folder with the state that a trial keeps: that of its last or its best epoch."""
    kept = checkpoint / KEPT_FOLDER
    return kept if kept.is_dir() else checkpoint
