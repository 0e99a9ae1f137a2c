"""The sweeps of a storage path."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tune_tf.errors import TuneTfError
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.sweep_folder import SweepFolder, sweep_paths


@dataclass(frozen=True)
class SweepList:
    """The sweeps of a storage path.

    Args:
        storage_path: Their storage path.
        sweeps: Newest first.
        unreadable: Error by name of an unreadable folder.
    """

    storage_path: Path
    sweeps: tuple[SweepView, ...]
    unreadable: Mapping[str, str]


def list_sweeps(
    storage_path: str | Path = "sweeps", clock: Callable[[], float] = time.time
) -> SweepList:
    """Read the folders of all sweeps under a storage path.

    Args:
        storage_path: Parent of the sweeps' folders.
        clock: Seconds since 1970.
    """
    root = Path(storage_path)
    sweeps, unreadable = [], {}
    for path in sweep_paths(root):
        try:
            sweeps.append(SweepView.of(SweepFolder.open(path), clock))
        except TuneTfError as error:
            unreadable[path.name] = str(error)
    newest_first = sorted(sweeps, key=lambda sweep: sweep.began_s, reverse=True)
    return SweepList(root, tuple(newest_first), unreadable)
