"""What Tune's last snapshot of a running sweep knows: what a resume would begin with.

The form of the file is Tune's own affair. What is used of it: its name, the status of each trial,
and the number of the step that it was written at. A file that does not have these tells nothing,
and then nothing is removed for its sake.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

_FILES = "experiment_state-*.json"
_OVER = ("TERMINATED", "ERROR")


@dataclass(frozen=True)
class TuneSnapshot:
    """One snapshot.

    Args:
        iteration: Tune's steps before it.
        ended: Ids of the trials that a resume would not run.
    """

    iteration: int
    ended: frozenset[str]


class TuneSnapshots:
    """The snapshots that this process has Tune write, as they arrive in the sweep's folder.

    Those that are there already are another process's, whose steps are counted alike.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._others = set(folder.glob(_FILES))

    def last(self) -> TuneSnapshot | None:
        """Return the snapshot that a resume would find, safe from a loss of power.

        None while there is none of this process, or while it is being written.
        """
        path = max(self._folder.glob(_FILES), default=None)
        if path is None or path in self._others:
            return None
        try:
            with path.open("rb") as file:
                told = json.load(file)
                os.fsync(file.fileno())
            trials = [json.loads(state) for state, _ in told["trial_data"]]
            ended = frozenset(str(each["trial_id"]) for each in trials if each["status"] in _OVER)
            return TuneSnapshot(int(told["runner_data"]["_iteration"]), ended)
        except (OSError, ValueError, TypeError, LookupError):
            return None
