"""Trainable for several independent models per trial: cross-validation folds or an ensemble."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ray.util.placement_group import PlacementGroup

from tune_tf.errors import CheckpointError
from tune_tf.outcome import STOP_CAUSE
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.checkpoint_files import (
    Files,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.trainables.multi_process.heartbeat import Watch
from tune_tf.trainables.multi_process.process_trainable import ProcessTrainable
from tune_tf.trainables.multi_process.worker import EpochReport, TrialStart, WorkerAssignment
from tune_tf.trainables.subtasks.pool import SubtaskPool
from tune_tf.trainables.subtasks.results import (
    SubtaskResults,
    best_subtask,
    has_diverged,
    summary,
)
from tune_tf.trainables.subtasks.worker import SubtaskAssignment, SubtaskSnapshot
from tune_tf.training.system_metrics import sum_peak_memory

NUM_DEVICES = "num_devices"
"""Result key of the number of devices of the trial."""

_TABLE = "subtasks.json"
_FORMAT = 1
_WHOLE = "trial.npz"  # name of the checkpoint file of a single-model trial


class FoldsTrainable(ProcessTrainable):
    """Trainable for the folds or ensemble members of a trial, one epoch of each per iteration.

    It schedules the subtasks on separate processes, one per device, and does not load TensorFlow.
    Devices do not wait for each other: an iteration is reported when the slowest subtask has
    completed it, while others are ahead. A reused actor keeps its processes.

    Without Tune it needs a Ray cluster and reserves the trial's resources itself.
    """

    def make_processes(
        self,
        assignment: WorkerAssignment,
        shares: Sequence[TrialResources],
        placement_group: PlacementGroup,
        watch: Watch,
    ) -> SubtaskPool:
        """Start a process in each bundle."""
        self._num_devices = len(shares)
        return SubtaskPool(
            SubtaskAssignment(
                **{each.name: getattr(assignment, each.name) for each in fields(assignment)},
                subtasks=self._parallelism,
                split_seed=self._settings.seed or 0,
            ),
            num_devices=len(shares),
            placement_group=placement_group,
            watch=watch,
        )

    def begin(self, trial: TrialStart) -> None:
        """Begin a trial in the processes, after ending the previous one."""
        self._reported = 0
        self._trial = trial
        self._processes.begin(trial)

    def step(self) -> dict[str, Any]:
        """Return the metrics of the next epoch, once all subtasks have completed it."""
        iteration = self._reported + 1
        metrics, all_ended = self._processes.iteration(iteration)
        self._reported = iteration
        reports = self._processes.reports
        loads = [each.system_metrics for each in reports]
        report = EpochReport(
            summary(metrics, self._parallelism.subtask),
            stop_training=all_ended,
            recycle=any(each.recycle for each in reports),
            system_metrics=sum_peak_memory(loads[0], loads) if loads else {},
        )
        result = self._result(report, iteration) | {NUM_DEVICES: self._num_devices}
        diverged = [number for number, each in enumerate(metrics) if has_diverged(each)]
        if diverged:
            members = ", ".join(f"{self._parallelism.subtask} {number}" for number in diverged)
            result[STOP_CAUSE] = f"{result[STOP_CAUSE]}: {members} diverged"
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the full training state into a folder of this node.

        The folder has one file per subtask and an index file, which is written last. The best
        subtask's file also gets the name of a single-model checkpoint.
        """
        snapshots, results = self._processes.snapshots()
        names = {
            number: f"{self._parallelism.subtask}_{number}-{snapshot.epoch}.npz"
            for number, snapshot in snapshots.items()
        }
        table = {
            "format": _FORMAT,
            "kind": self._parallelism.kind,
            "reported": self._reported,
            "files": {
                str(number): [names[number], each.epoch] for number, each in snapshots.items()
            },
            "results": results.plain(),
        }
        folder = Path(checkpoint_dir)
        write_checkpoint_files(
            folder,
            {names[number]: each.files[_WHOLE] for number, each in snapshots.items()}
            | {_TABLE: json.dumps(table).encode()},
        )
        for path in folder.glob("*-*.npz"):
            if path.name not in names.values():
                path.unlink()
        if len(snapshots) == self._parallelism.num_subtasks and self._reported:
            self._show_best(folder, names[best_subtask(results.of(self._reported))])
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state from a folder of :meth:`save_checkpoint`, on any number of devices."""
        files = read_checkpoint_files(checkpoint)
        table = self._table(files, checkpoint)
        self._reported = table["reported"]
        snapshots = {
            int(number): SubtaskSnapshot(epoch, {_WHOLE: files[name]})
            for number, (name, epoch) in table["files"].items()
        }
        self._processes.begin(
            self._trial,
            reported=self._reported,
            results=SubtaskResults.of_plain(table["results"]),
            snapshots=snapshots,
        )
        self._last_checkpoint = self._clock()

    def _table(self, files: Files, checkpoint: Any) -> Mapping[str, Any]:
        """Return the index of a checkpoint, after checking that it fits this trial."""
        kind, count = self._parallelism.kind, self._parallelism.num_subtasks
        if _TABLE not in files:
            raise CheckpointError(
                f"{checkpoint} is not a checkpoint of a trial of kind {kind!r}: it has no {_TABLE}"
            )
        try:
            table = json.loads(files[_TABLE])
            named = {name for name, _ in table["files"].values()}
            found = table["format"], table["kind"], len(table["results"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{checkpoint}/{_TABLE} is damaged: {error!r}") from error
        if found != (_FORMAT, kind, count):
            raise CheckpointError(
                f"{checkpoint} is of {found[2]} subtasks of kind {found[1]!r} (format {found[0]}), "
                f"but this trial has {count} of kind {kind!r} (format {_FORMAT})"
            )
        if missing := named - set(files):
            raise CheckpointError(f"{checkpoint} lacks {', '.join(sorted(missing))}")
        return table

    def _show_best(self, folder: Path, name: str) -> None:
        """Link the best subtask's file under the name of a single-model checkpoint."""
        partial = folder / f".{_WHOLE}.{os.getpid()}"
        partial.unlink(missing_ok=True)
        try:
            os.link(folder / name, partial)
        except OSError:  # no hard links on this file system
            shutil.copyfile(folder / name, partial)
        partial.replace(folder / _WHOLE)
