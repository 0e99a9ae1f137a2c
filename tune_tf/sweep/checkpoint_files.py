"""Whether a trial's checkpoint is whole, told by its files alone."""

import json
import zipfile
from pathlib import Path

import numpy as np

_TRIAL = "trial.npz"  # what tune_tf.training.checkpoint writes; it would load Keras
_HEAD = "head"


def is_whole(folder: Path, *, thoroughly: bool = False) -> bool:
    """Return whether a checkpoint's folder is there and none of its files is cut short.

    Args:
        folder: The checkpoint's folder.
        thoroughly: Whether to read all bytes, which finds those that are wrong, too.
    """
    try:
        files = [path for path in folder.iterdir() if not path.name.startswith(".")]
        return bool(files) and all(_is_whole_file(path, thoroughly=thoroughly) for path in files)
    except OSError:
        return False


def iteration_of(folder: Path) -> int | None:
    """Return a trial's iteration when a checkpoint was saved; None where it does not tell."""
    try:
        with np.load(folder / _TRIAL, allow_pickle=False) as archive:
            return int(json.loads(str(archive[_HEAD]))["epoch"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _is_whole_file(path: Path, *, thoroughly: bool) -> bool:
    if path.suffix == ".npz":
        if not zipfile.is_zipfile(path):
            return False
        if not thoroughly:
            return True
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is None
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError):
            return False
    if path.suffix == ".json":
        try:
            json.loads(path.read_text())
        except ValueError:
            return False
    return path.stat().st_size > 0
