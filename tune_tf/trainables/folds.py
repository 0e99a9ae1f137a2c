"""Trainable for several independent models per trial: cross-validation folds or an ensemble."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import atomic_path
from tune_tf.errors import CheckpointError
from tune_tf.trainables.multi_process.process_trainable import ProcessTrainable
from tune_tf.trainables.multi_process.worker import (
    Files,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.trainables.subtasks.pool import SubtaskPool
from tune_tf.trainables.subtasks.progress import (
    SubtaskResults,
    best_subtask,
    has_diverged,
    summary,
)
from tune_tf.trainables.subtasks.worker import SubtaskSnapshot
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.system_metrics import sum_peak_memory

_INDEX = "subtasks.json"
_FORMAT = 1
_CHECKPOINT = "trial.npz"  # name of the checkpoint file of a single-model trial


class SubtaskGroup(SubtaskPool):
    """Processes that train the folds or ensemble members of a trial.

    Devices do not wait for each other: an epoch is reported when the slowest subtask has completed
    it, while others are ahead.
    """

    _reported = 0

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._reported = 0
        self.begin(trial)

    def epoch(self) -> EpochReport:
        """Return the metrics of the next epoch, once all subtasks have completed it."""
        metrics, all_ended = self.iteration(self._reported + 1)
        self._reported += 1
        label = self._subtasks.subtask
        diverged = [f"{label} {i}" for i, each in enumerate(metrics) if has_diverged(each)]
        reports = [device.report for device in self._devices if device.report is not None]
        loads = [each.system_metrics for each in reports]
        return EpochReport(
            summary(metrics, label),
            stop_training=all_ended,
            recycle=any(each.recycle for each in reports),
            system_metrics=sum_peak_memory(loads[0], loads) if loads else {},
            extra={"num_devices": len(self._bundles.shares)},
            divergence=f"{', '.join(diverged)} diverged" if diverged else "",
        )

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node.

        The folder has one file per subtask and an index file, which is written last. The best
        subtask's file also gets the name of a single-model checkpoint.
        """
        snapshots, results = self.snapshots()
        names = {
            number: f"{self._subtasks.subtask}_{number}-{snapshot.epoch}.npz"
            for number, snapshot in snapshots.items()
        }
        index = {
            "format": _FORMAT,
            "kind": self._subtasks.kind,
            "reported": self._reported,
            "files": {str(number): [names[number], it.epoch] for number, it in snapshots.items()},
            "results": results.plain(),
        }
        files = {names[number]: it.files[_CHECKPOINT] for number, it in snapshots.items()}
        write_checkpoint_files(folder, files | {_INDEX: json.dumps(index).encode()})
        for path in folder.glob("*-*.npz"):
            if path.name not in names.values():
                path.unlink()
        is_complete = self._reported and results.is_complete(self._reported)
        if len(snapshots) == self._subtasks.num_subtasks and is_complete:
            _link_best(folder, names[best_subtask(results.of(self._reported))])

    def read_checkpoint(self, folder: Path) -> None:
        """Restore the state from a folder, on any number of devices."""
        files = read_checkpoint_files(folder)
        index = self._read_index(files, folder)
        self._reported = index["reported"]
        snapshots = {
            int(number): SubtaskSnapshot(epoch, {_CHECKPOINT: files[name]})
            for number, (name, epoch) in index["files"].items()
        }
        results = SubtaskResults.of_plain(index["results"])
        self.begin(self._trial, reported=self._reported, results=results, snapshots=snapshots)

    def _read_index(self, files: Files, folder: Path) -> Mapping[str, Any]:
        """Return the index of a checkpoint, after checking that it fits this trial."""
        kind, count = self._subtasks.kind, self._subtasks.num_subtasks
        if _INDEX not in files:
            raise CheckpointError(
                f"{folder} is not a checkpoint of a trial of kind {kind!r}: it has no {_INDEX}"
            )
        try:
            index = json.loads(files[_INDEX])
            names = {name for name, _ in index["files"].values()}
            origin = index["format"], index["kind"], len(index["results"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{folder}/{_INDEX} is damaged: {error!r}") from error
        if origin != (_FORMAT, kind, count):
            raise CheckpointError(
                f"{folder} is of {origin[2]} subtasks of kind {origin[1]!r} (format {origin[0]}), "
                f"but this trial has {count} of kind {kind!r} (format {_FORMAT})"
            )
        if missing := names - set(files):
            raise CheckpointError(f"{folder} lacks {', '.join(sorted(missing))}")
        return index


def _link_best(folder: Path, name: str) -> None:
    """Link the best subtask's file under the name of a single-model checkpoint."""
    with atomic_path(folder / _CHECKPOINT) as partial:
        partial.unlink(missing_ok=True)
        try:
            os.link(folder / name, partial)
        except OSError:  # no hard links on this file system
            shutil.copyfile(folder / name, partial)


class FoldsTrainable(ProcessTrainable):
    """Trainable for the folds or ensemble members of a trial, one epoch of each per iteration."""

    group_class = SubtaskGroup
