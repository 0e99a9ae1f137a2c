"""Trainable for several independent models per trial: cross-validation folds or an ensemble.

A model, a subtask of the trial, is one loop in one process for the whole trial.
"""

import functools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.errors import CheckpointError, DamagedCheckpointError
from tune_tf.parallelism import Folds
from tune_tf.parallelism.subtasks import Subtasks
from tune_tf.tracking.trial_run import leave_trial
from tune_tf.trainables.checkpoint_files import (
    Files,
    checkpoint_of,
    files_of,
    read_checkpoint_files,
    saved_epoch,
    write_checkpoint_files,
)
from tune_tf.trainables.processes import (
    Bundles,
    ProcessGroup,
    ProcessTrainable,
    Worker,
    WorkerSetup,
)
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.seeds import derive_seed
from tune_tf.training.system_metrics import sum_peak_memory
from tune_tf.workload import Config

if TYPE_CHECKING:
    from tune_tf.training.input.device_rows import DeviceRows
    from tune_tf.training.loop import GraphLoop
    from tune_tf.training.replicas.replicas import Replicas

_INDEX = "subtasks.json"
_CHECKPOINT = "trial.npz"  # name of the checkpoint file of a single-model trial

SubtaskMetrics = dict[str, float]


class SubtaskWorker(Worker):
    """Worker that trains subtasks in turns, one epoch of one subtask per call.

    Each subtask has a loop of its own; all share the traced graphs.
    """

    def __init__(self, rank: int = 0, host: str = "", name: str = "") -> None:
        super().__init__(rank, host, name)
        self._replicas: Replicas
        self._rows: Callable[[int], DeviceRows]
        self._loops: dict[int, GraphLoop] = {}  # of the subtasks that have begun

    def prepare(self) -> None:
        """Prepare for trials, once the devices are claimed."""
        from tune_tf.training.graph import GraphCache
        from tune_tf.training.replicas.replicas import Replicas

        self._graphs = GraphCache()  # of all subtasks
        self._parallelism: Subtasks = self._settings.parallelism
        self._replicas = Replicas(self.devices)
        self._frozen = functools.cache(lambda subtask: self.frozen_outputs(self._replicas))
        self._place_data = self._rows_by_subtask

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._end_loops()
        with self._beginning(trial):
            self._rows = self._rows_of(self._load(trial), trial.config)

    def turn(self, subtask: int, state: bytes | None) -> tuple[int, EpochReport]:
        """Train and validate a subtask for one epoch, from a checkpoint if there is one."""
        self._enter()
        if subtask not in self._loops:
            self._begin(subtask)
        loop = self._loops[subtask]
        if state is not None:
            loop.restore(checkpoint_of({_CHECKPOINT: state}))
        report = self._report(loop.epoch(), loop.num_programs, loop)
        return subtask, replace(report, metrics=report.numbers)

    def states(self, method: str) -> dict[int, bytes]:
        """Return the checkpoints of this process' subtasks: their ``state`` or ``epoch_state``."""
        return {
            subtask: files_of(getattr(loop, method)())[_CHECKPOINT]
            for subtask, loop in self._loops.items()
        }

    def finish(self) -> None:
        """End the trial."""
        self._end_loops()
        leave_trial()

    def _begin(self, subtask: int) -> None:
        from tune_tf.training.loop import GraphLoop

        loop = GraphLoop(
            self._replicas, self._parallelism, graphs=self._graphs, frozen=self._frozen(subtask)
        )
        loop.callback_context = self._callback_context(f"{self._parallelism.subtask}_{subtask}")
        seed = self._trial.seed
        if subtask and not self._parallelism.splits_rows:
            seed = derive_seed(seed, subtask)
        workload = self._load(self._trial).workload
        loop.start(workload, self._trial.config, self._rows(subtask), seed)
        self._loops[subtask] = loop
        self._stop_autologging()

    def _end_loops(self) -> None:
        for loop in self._loops.values():
            loop.finish()
        self._loops.clear()

    def _rows_by_subtask(self, data: Any, config: Config) -> "Callable[[int], DeviceRows]":
        """Return a function from a subtask to its rows on the device."""
        from tune_tf.data import FoldedRows
        from tune_tf.data.rows import has_datasets
        from tune_tf.training.input.device_rows import place_rows

        if isinstance(self._parallelism, Folds):
            seed = self._settings.seed or 0  # equal for all trials of a sweep
            folds = FoldedRows(data, self._parallelism, seed=seed, floatx=self._floatx)
            return functools.cache(lambda fold: place_rows(folds.rows(fold), self._replicas))
        separate = has_datasets(data)  # each reads its own
        place = functools.cache(lambda key: self._place(data, config, self._replicas))
        return lambda member: place(member if separate else 0)


class SubtaskGroup:
    """Subtasks of a trial, which take turns in the trial's own process."""

    def __init__(self, worker: SubtaskWorker, subtasks: Subtasks) -> None:
        self._worker = worker
        self._subtasks = subtasks
        self.devices = str(worker.devices)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._metrics: dict[int, SubtaskMetrics] = {}
        self._ended: set[int] = set()
        self._restored: dict[int, bytes] = {}  # checkpoints from which no process has begun
        self._start(trial)

    def epoch(self) -> EpochReport:
        """Train all subtasks for one epoch; one that has ended keeps its last metrics."""
        num, label = self._subtasks.num_subtasks, self._subtasks.subtask
        active = (subtask for subtask in range(num) if subtask not in self._ended)
        reports = self._train({subtask: self._restored.get(subtask) for subtask in active})
        for subtask, report in reports.items():
            self._restored.pop(subtask, None)
            self._metrics[subtask] = report.metrics
            if report.stop_training:
                self._ended.add(subtask)
        metrics = [self._metrics[subtask] for subtask in range(num)]
        last = {self._rank_of(subtask): report for subtask, report in reports.items()}
        loads = [report.system_metrics for report in last.values()]
        return EpochReport(
            summary(metrics, label),
            stop_training=len(self._ended) == num,
            recycle=any(report.recycle for report in reports.values()),
            system_metrics=sum_peak_memory(loads[0], loads) if loads else {},
            extra={"num_devices": self._subtasks.num_devices},
        )

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node.

        The folder has one file per subtask and an index file, which is written last. The best
        subtask's file also gets the name of a single-model checkpoint.
        """
        write_checkpoint_files(folder, self._files("state"))

    def snapshot(self) -> Callable[[Path], None]:
        """Return a writer of the state that the metrics of the last epoch belong to."""
        files = self._files("epoch_state")
        return lambda folder: write_checkpoint_files(folder, files)

    def read_checkpoint(self, folder: Path) -> None:
        """Restore the state from a folder, on any number of devices."""
        saved_epoch(folder)  # the subtasks read theirs later
        files, subtasks = read_checkpoint_files(folder), self._subtasks
        index = json.loads(files.get(_INDEX, b"{}"))
        if missing := {_INDEX, *index.get("files", {}).values()} - files.keys():
            raise DamagedCheckpointError(f"{folder} lacks {', '.join(sorted(missing))}")
        if (index.get("kind"), index.get("num_subtasks")) != (subtasks.kind, subtasks.num_subtasks):
            raise CheckpointError(
                f"{folder} is no checkpoint of a trial of kind {subtasks.kind!r} with "
                f"{subtasks.num_subtasks} {subtasks.subtask}s: start a new trial"
            )
        self._metrics = {int(subtask): each for subtask, each in index["metrics"].items()}
        self._ended = set(index["ended"])
        self._restored = {int(subtask): files[name] for subtask, name in index["files"].items()}

    def finish(self) -> None:
        """End the trial."""
        self._worker.finish()

    def _rank_of(self, subtask: int) -> int:
        """Return the rank of the process that trains a subtask."""
        return subtask % self._subtasks.num_devices

    def _start(self, trial: TrialStart) -> None:
        self._worker.start(trial)

    def _train(self, states: Mapping[int, bytes | None]) -> dict[int, EpochReport]:
        """Train subtasks for one epoch, from a checkpoint where there is one."""
        return dict(self._worker.turn(subtask, state) for subtask, state in states.items())

    def _states(self, method: str) -> dict[int, bytes]:
        return self._worker.states(method)

    def _files(self, method: str) -> Files:
        """Return the files of a checkpoint."""
        states = self._states(method) | self._restored
        names = {subtask: f"{self._subtasks.subtask}_{subtask}.npz" for subtask in sorted(states)}
        index = {
            "kind": self._subtasks.kind,
            "num_subtasks": self._subtasks.num_subtasks,
            "files": names,
            "metrics": self._metrics,
            "ended": sorted(self._ended),
        }
        files = {names[subtask]: state for subtask, state in sorted(states.items())}
        if self._metrics:
            files[_CHECKPOINT] = states[best_subtask(self._metrics)]
        return files | {_INDEX: json.dumps(index).encode()}


class SubtaskPool(SubtaskGroup, ProcessGroup):
    """Subtasks of a trial that train in several processes, one per bundle.

    A subtask trains in the same process in all epochs and trials.
    """

    def __init__(self, setup: WorkerSetup, bundles: Bundles) -> None:
        self._subtasks = setup.settings.parallelism
        self._actors = bundles.start_workers(SubtaskWorker)
        self.devices = "; ".join(self.call("set_up", setup))
        self.call("prepare")

    def _start(self, trial: TrialStart) -> None:
        self.call("start", trial)

    def _train(self, states: Mapping[int, bytes | None]) -> dict[int, EpochReport]:
        calls = [
            self._actors[self._rank_of(subtask)].call.remote("turn", subtask, state)
            for subtask, state in states.items()
        ]
        return dict(self._results(calls))

    def _states(self, method: str) -> dict[int, bytes]:
        states = self.call("states", method)
        return {subtask: state for each in states for subtask, state in each.items()}


def best_subtask(metrics: Mapping[int, SubtaskMetrics]) -> int:
    """Return the subtask with the lowest ``val_loss``, or lowest ``loss`` without validation."""

    def loss(subtask: int) -> float:
        value = metrics[subtask].get("val_loss", metrics[subtask].get("loss", math.inf))
        return value if math.isfinite(value) else math.inf

    return min(sorted(metrics), key=loss)


def summary(metrics: Sequence[SubtaskMetrics], label: str) -> SubtaskMetrics:
    """Return a trial's metrics: mean and standard deviation over subtasks, and their values.

    ``label`` is the name of a subtask. The mean has the metric's name, the sample standard
    deviation (divisor n - 1) the suffix ``_std``, and each subtask's values a prefix such as
    ``fold_0/``.
    """
    means: SubtaskMetrics = {}
    deviations: SubtaskMetrics = {}
    for name in metrics[0]:
        values = [float(each[name]) for each in metrics if name in each]
        if len(values) < len(metrics):
            continue  # a mean needs all subtasks
        means[name] = sum(values) / len(values)
        if math.isfinite(means[name]):
            deviations[f"{name}_std"] = statistics.stdev(values)
    values_by_subtask = {
        f"{label}_{number}/{name}": value
        for number, each in enumerate(metrics)
        for name, value in each.items()
    }
    return deviations | means | values_by_subtask


class FoldsTrainable(ProcessTrainable):
    """Trainable for the folds or ensemble members of a trial, one epoch of each per iteration."""

    group_class = SubtaskPool

    def set_up_processes(self, config: Config) -> None:
        """Start a process in each of several bundles, or claim the devices of this process."""
        settings = self._settings
        if settings.parallelism.in_processes:
            super().set_up_processes(config)
            return
        self._worker = SubtaskWorker()
        self.claim_devices(self._worker, 1)
        self._worker.prepare()
        self._processes = SubtaskGroup(self._worker, settings.parallelism)
        self._begin(config)

    def cleanup(self) -> None:
        """End the trial and its processes."""
        if self._settings.parallelism.in_processes:
            super().cleanup()
            return
        self._processes.finish()
        self._worker.log.end()
