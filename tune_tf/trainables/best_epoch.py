"""Best epoch of a trial: its metrics, and its state in each checkpoint of the trial."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import write_atomically
from tune_tf.ranking import KEPT_FOLDER, KEPT_INDEX, KeepBest
from tune_tf.result_keys import KEPT, TRAINING_ITERATION, is_machine_metric
from tune_tf.space.parameter import is_number
from tune_tf.trainables.multi_process.worker import read_checkpoint_files, write_checkpoint_files

Writer = Callable[[Path], None]
"""Writes a state of a trial into a folder."""


class BestEpoch:
    """Best epoch of a trial so far, by a rule.

    The state of that epoch lies in a folder of each checkpoint, unless it is the checkpoint's own.
    So what a checkpoint keeps belongs to the results up to it, whatever is killed.
    """

    def __init__(self, rule: KeepBest) -> None:
        self._rule = rule
        self.clear()

    def clear(self) -> None:
        """Forget the epoch, before another trial."""
        self._iteration, self._metrics = 0, dict[str, Any]()
        self._write: Writer | None = None

    def update(
        self, iteration: int, reported: Mapping[str, Any], snapshot: Callable[[], Writer]
    ) -> dict[str, Any]:
        """Take an epoch into account; return what the trial reports of its best one.

        ``snapshot`` returns a writer of the state that the epoch's metrics belong to.
        """
        if not self._rule.accepts(reported):
            return {}
        if self._write is None or self._rule.prefers(reported, self._metrics):
            self._write, self._iteration = snapshot(), iteration
            self._metrics = {name: each for name, each in reported.items() if is_number(each)}
        return {
            f"{KEPT}{name}": value
            for name, value in {**self._metrics, TRAINING_ITERATION: self._iteration}.items()
            if not is_machine_metric(name)
        }

    def write(self, folder: Path, *, is_current: bool) -> None:
        """Add it to a checkpoint; ``is_current`` if the checkpoint may be its own state."""
        kept = folder / KEPT_FOLDER
        shutil.rmtree(kept, ignore_errors=True)
        if self._write is not None and not is_current:
            kept.mkdir()
            self._write(kept)
        files = sorted(path.name for path in kept.iterdir()) if kept.exists() else []
        head = {"iteration": self._iteration, "metrics": self._metrics, "files": files}
        write_atomically(folder / KEPT_INDEX, json.dumps(head).encode(), on_disk=False)

    def read(self, folder: Path, snapshot: Callable[[], Writer]) -> None:
        """Restore it from a checkpoint that has been loaded."""
        self.clear()
        if not (folder / KEPT_INDEX).exists():
            return
        head = json.loads((folder / KEPT_INDEX).read_text())
        self._iteration, self._metrics = head["iteration"], head["metrics"]
        if not self._iteration:
            return
        if head["files"]:
            files = read_checkpoint_files(folder / KEPT_FOLDER)
            self._write = lambda path: write_checkpoint_files(path, files)
        else:
            self._write = snapshot()

    @property
    def iteration(self) -> int:
        """Its number, from 1; 0 without one."""
        return self._iteration
