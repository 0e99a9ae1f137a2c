"""A trial of several models that are trained apart: folds of a cross-validation, an ensemble."""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from tune_tf.errors import CheckpointError
from tune_tf.outcome import STOP_CAUSE
from tune_tf.parallelism import Ensemble, Folds, Mirrored
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.bundles import Bundles
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.files import Files, read_files, write_files
from tune_tf.trainables.memory_saving import micro_batches_of
from tune_tf.trainables.pulses import Watch
from tune_tf.trainables.recycling import RECYCLE, Recycling
from tune_tf.trainables.subtask_crew import SubtaskCrew
from tune_tf.trainables.subtask_results import (
    SubtaskResults,
    best_of,
    has_diverged,
    summary,
)
from tune_tf.trainables.subtask_worker import Snapshot, SubtaskAssignment
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.trainables.worker import PickledWorkload, TrialStart
from tune_tf.workload import Config

NUM_DEVICES = "num_devices"
"""Key of a result that holds how many devices the trial has."""

_TABLE = "subtasks.json"
_FORMAT = 1
_WHOLE = "trial.npz"  # as a trial of one model names its checkpoint


class FoldsTrainable(tune.Trainable):
    """Trains the folds or the members of a trial, each for an epoch an iteration.

    It hands out work to processes of its own, one a device, and stays free of TensorFlow. Devices
    do not wait for each other: an iteration is reported when the last subtask has done it, while
    others are ahead. The processes serve one trial after another where Tune reuses this actor.

    Driven by hand it needs a Ray cluster, and reserves there what Tune would reserve for it.
    """

    def setup(
        self,
        config: Config,
        *,
        workload: PickledWorkload,
        parallelism: Folds | Ensemble,
        resources: TrialResources,
        seed: int | None = None,
        checkpoint_interval_s: float | None = None,
        recycling: Recycling | None = None,
        tracking: TrialTracking | None = None,
        watch: Watch = Watch(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the processes and begin the first trial.

        Args:
            config: The trial's values.
            workload: Its data and model.
            parallelism: What it consists of.
            resources: What all its processes together may use, where Tune has reserved nothing.
            seed: The sweep's seed, by which rows are split into folds; None splits by 0 and draws
                the seeds of models from the trial's id.
            checkpoint_interval_s: Seconds of training after which an iteration asks Tune for a
                checkpoint; None leaves it to Tune's ``CheckpointConfig``.
            recycling: When the processes have traced too much to serve another trial.
            tracking: Where the trial's MLflow run is, for :func:`tune_tf.mlflow_run`; None if it
                has none.
            watch: When a process counts as lost.
            clock: Seconds that only grow.

        Raises:
            UnavailableResourcesError: There is no Ray cluster, or no room on it.
        """
        self._reported = 0
        self._last_checkpoint = clock()
        self._sweep_seed = seed
        self._checkpoint_interval_s = checkpoint_interval_s
        self._clock = clock
        self._subtasks = parallelism
        self._micro_batches = micro_batches_of(self.trial_resources, parallelism)
        self._saving = self._micro_batches > parallelism.micro_batches  # it ran out of memory
        self._bundles = Bundles(self.trial_resources, parallelism, resources)
        shares = self._bundles.shares
        self._num_devices = min(len(shares), parallelism.num_subtasks)
        try:
            self._crew = SubtaskCrew(
                SubtaskAssignment(
                    workload,
                    shares[0],
                    Mirrored(micro_batches=self._micro_batches),
                    tracking,
                    recycling or Recycling(),
                    subtasks=parallelism,
                    split_seed=seed or 0,
                ),
                num_devices=self._num_devices,
                placement_group=self._bundles.placement_group,
                watch=watch,
            )
        except BaseException:
            self._bundles.give_back()
            raise
        self._start(config)

    def step(self) -> dict[str, Any]:
        """Return the metrics of the next epoch of all subtasks, once the last has done it."""
        iteration = self._reported + 1
        metrics, all_ended = self._crew.iteration(iteration)
        self._reported = iteration
        result = epoch_result(
            summary(metrics, self._subtasks.subtask),
            iteration=iteration,
            stop_training=all_ended,
            devices=self._crew.devices,
        )
        diverged = [number for number, each in enumerate(metrics) if has_diverged(each)]
        if diverged:
            told = ", ".join(f"{self._subtasks.subtask} {number}" for number in diverged)
            result[STOP_CAUSE] = f"{result[STOP_CAUSE]}: {told} diverged"
        result[NUM_DEVICES] = self._num_devices
        if self._saving:
            result["micro_batches"] = self._micro_batches
        interval = self._checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        reports = self._crew.reports
        if any(report.recycle for report in reports):
            result[RECYCLE] = True
        return result | (reports[0].system_metrics if reports else {})

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write everything needed to go on into a folder of this node.

        There is a file for each subtask, and a table that names them and is written last. The best
        one's file also stands under the name of a plain trial's checkpoint.
        """
        snapshots, results = self._crew.snapshots()
        names = {
            number: f"{self._subtasks.subtask}_{number}-{snapshot.epoch}.npz"
            for number, snapshot in snapshots.items()
        }
        table = {
            "format": _FORMAT,
            "kind": self._subtasks.kind,
            "reported": self._reported,
            "files": {
                str(number): [names[number], each.epoch] for number, each in snapshots.items()
            },
            "results": results.plain(),
        }
        folder = Path(checkpoint_dir)
        write_files(
            folder,
            {names[number]: each.files[_WHOLE] for number, each in snapshots.items()}
            | {_TABLE: json.dumps(table).encode()},
        )
        for path in folder.glob("*-*.npz"):
            if path.name not in names.values():
                path.unlink()
        if len(snapshots) == self._subtasks.num_subtasks and self._reported:
            self._show_best(folder, names[best_of(results.of(self._reported))])
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that :meth:`save_checkpoint` wrote, on any number of devices."""
        files = read_files(checkpoint)
        table = self._table(files, checkpoint)
        self._reported = table["reported"]
        snapshots = {
            int(number): Snapshot(epoch, {_WHOLE: files[name]})
            for number, (name, epoch) in table["files"].items()
        }
        self._crew.begin(
            self._trial,
            reported=self._reported,
            results=SubtaskResults.of_plain(table["results"]),
            snapshots=snapshots,
        )
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in these processes, with the numbers that fresh ones would give."""
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._crew.end(finish=True)
        self._bundles.give_back()

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        self._reported = 0
        seed = seed_of_trial(self._sweep_seed, self.trial_id, self.trial_name)
        self._trial = TrialStart(self.trial_id, dict(config), seed)
        self._crew.begin(self._trial)

    def _table(self, files: Files, checkpoint: Any) -> Mapping[str, Any]:
        """Return the table of a checkpoint, if it is of a trial like this one.

        Raises:
            CheckpointError: It is not, or is damaged.
        """
        kind, count = self._subtasks.kind, self._subtasks.num_subtasks
        if _TABLE not in files:
            raise CheckpointError(
                f"{checkpoint} is no checkpoint of a trial of kind {kind!r}: it holds no {_TABLE}"
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
        """Give the best subtask's file the name of a plain trial's, as a link."""
        partial = folder / f".{_WHOLE}.{os.getpid()}"
        partial.unlink(missing_ok=True)
        try:
            os.link(folder / name, partial)
        except OSError:  # this file system has no links
            shutil.copyfile(folder / name, partial)
        partial.replace(folder / _WHOLE)
