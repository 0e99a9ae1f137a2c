"""Base trainable of all kinds of parallelism, and the best epoch of a trial."""

import abc
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from traceback import format_exception
from typing import Any

from pyarrow.fs import FileSelector, FileType
from ray import tune
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import DamagedCheckpointError, WorkerLostError, WorkloadError
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause, infer_outcome
from tune_tf.ranking import KEPT_FOLDER, KEPT_INDEX, KeepBest
from tune_tf.record import log_path
from tune_tf.resources import TrialResources
from tune_tf.result_keys import KEPT, TRAINING_ITERATION, is_machine_metric
from tune_tf.space.parameter import is_number
from tune_tf.trainables.checkpoint_files import (
    read_checkpoint_files,
    saved_epoch,
    write_checkpoint_files,
)
from tune_tf.trainables.memory.oom_retries import micro_batches_of
from tune_tf.trainables.memory.recycling import RECYCLE
from tune_tf.trainables.trial_process import TrialProcess, TrialStart
from tune_tf.trainables.trial_settings import TrialSettings, seed_of_trial
from tune_tf.tune_internals.trial_state import to_training_result
from tune_tf.workload import Config

_log = logging.getLogger(__name__)


class TrialTrainable(tune.Trainable, abc.ABC):
    """Base trainable with one epoch per iteration; :func:`tune_tf.trainable` sets it up.

    A reused actor keeps its processes, traced programs and data. What trains is a
    :class:`TrialProcess` or a group of processes with the same methods.
    """

    _processes: Any
    _setup_error: Exception | None = None  # out of memory, or a lost process

    def setup(
        self,
        config: Config,
        *,
        workload: Any,
        settings: TrialSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the processes and begin the first trial."""
        declared = settings.parallelism
        micro_batches = micro_batches_of(self.trial_resources, declared)
        self._ran_out_of_memory = micro_batches > declared.micro_batches
        parallelism = replace(declared, micro_batches=micro_batches)
        self._settings = replace(settings, parallelism=parallelism)
        self._workload = workload
        self._clock = clock
        self._best = None if settings.keep is None else BestEpoch(settings.keep)
        self._has_stopped = False
        try:
            self.set_up_processes(config)
        except Exception as error:
            is_oom = Outcome.of_error("".join(format_exception(error))) is Outcome.OOM
            is_lost = isinstance(error, WorkerLostError)
            if self.trial_resources is None or not (is_oom or is_lost):
                raise
            self._setup_error = error  # Tune retries no trial that fails before its first step

    @abc.abstractmethod
    def set_up_processes(self, config: Config) -> None:
        """Set what trains, and begin the first trial."""

    def claim_devices(self, process: TrialProcess, num_devices: int) -> None:
        """Claim devices of this actor for a process that trains in it."""
        process.log.begin(log_path(self._settings.log_folder, self.trial_name))
        process.claim(self._workload, self._settings, self.own_resources, num_devices)

    @property
    def own_resources(self) -> TrialResources:
        """Resources of this actor: those that Tune reserved for it, or the declared ones."""
        if self.trial_resources is None:
            return self._settings.resources
        return TrialResources.of_bundle(self.trial_resources.required_resources)

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        self._raise_setup_error()
        report = self._processes.epoch()
        result = report.numbers | {"devices": str(self._processes.devices)}
        outcome = infer_outcome(
            Outcome.COMPLETED if report.stop_training else None,
            finite=is_finite(result.get("loss", 0.0)),
        )
        if outcome is not None:
            result |= {DONE: True, STOP_REASON: outcome.value}
        if outcome is Outcome.DIVERGED:
            cause = divergence_cause(result, ["loss"], self.iteration + 1)
            result[STOP_CAUSE] = cause
        interval = self._settings.checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if report.recycle:
            result[RECYCLE] = True
        if self._ran_out_of_memory:
            result["micro_batches"] = self._settings.parallelism.micro_batches
        if self._best is not None and outcome is not Outcome.DIVERGED:
            self._has_stopped = report.stop_training
            reported = report.numbers | report.system_metrics | report.extra
            result |= self._best.update(self.iteration + 1, reported, self._processes.snapshot)
        return result | report.system_metrics | report.extra

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the full training state into a folder of this node."""
        self._processes.write_checkpoint(Path(checkpoint_dir))
        if self._best is not None:
            # The end of training may have changed the weights.
            is_current = self._best.iteration == self.iteration and not self._has_stopped
            self._best.write(Path(checkpoint_dir), is_current=is_current)
        self._last_checkpoint = self._clock()

    def restore(self, checkpoint_path: Any) -> None:
        """Restore a checkpoint; if it is damaged or gone, an older one of the trial, or start over.

        Tune would retry a damaged one until ``max_failures`` is used up.
        """
        newest = getattr(checkpoint_path, "checkpoint", None)
        if newest is None:  # it is not Tune that calls
            super().restore(checkpoint_path)
            return
        self._raise_setup_error()
        try:
            if newest.filesystem.get_file_info(newest.path).type is FileType.NotFound:
                raise DamagedCheckpointError(f"there is no checkpoint at {newest.path}")
            super().restore(checkpoint_path)
        except DamagedCheckpointError as error:
            start = self._restore_older(newest)
            _log.warning("trial %s %s: %s", self.trial_name, start, error)

    def _restore_older(self, damaged: tune.Checkpoint) -> str:
        """Restore the newest intact checkpoint before a damaged one, or start over; say which."""
        folder, _, name = damaged.path.rpartition("/")
        files = damaged.filesystem.get_file_info(FileSelector(folder, allow_not_found=True))
        older = [it for it in files if it.base_name[:11] == name[:11] and it.base_name < name]
        for each in sorted(older, key=lambda it: it.base_name, reverse=True):
            checkpoint = tune.Checkpoint(each.path, damaged.filesystem)
            with suppress(DamagedCheckpointError):
                with checkpoint.as_directory() as path:
                    head = {TRAINING_ITERATION: saved_epoch(Path(path))}
                super().restore(to_training_result(each.path, damaged.filesystem, head))
                return f"goes on from {each.base_name}, epoch {head[TRAINING_ITERATION]}"
        self.reset(dict(self.config), storage=self._storage)
        return "starts over"

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state from a folder of this node, with any number of replicas or devices.

        Raises:
            DamagedCheckpointError: A file is missing or truncated.
            CheckpointError: It is that of another model.
        """
        self._raise_setup_error()
        self._processes.read_checkpoint(Path(checkpoint))
        if self._best is not None:
            self._has_stopped = False
            self._best.read(Path(checkpoint), self._processes.snapshot)
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial, with the same numbers as in a fresh process."""
        self._begin(new_config)
        return True

    def stop(self) -> None:
        """End the trial, if it began."""
        if self._setup_error is None:
            super().stop()

    def _raise_setup_error(self) -> None:
        if self._setup_error is not None:
            raise self._setup_error

    def _begin(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        if self._best is not None:
            self._best.clear()
            self._has_stopped = False
        log = log_path(self._settings.log_folder, self.trial_name)
        try:
            self._processes.start(TrialStart(self.trial_id, dict(config), self._seed(), log))
        except FileNotFoundError as error:
            refuse_relative_path(error)
            raise

    def _seed(self) -> int:
        return seed_of_trial(self._settings.seed, self.trial_id, self.trial_name)


def refuse_relative_path(error: FileNotFoundError) -> None:
    """Raise a WorkloadError with the absolute path of a file that the script would have found.

    Tune runs a trial in a folder of its own, and keeps the script's in an environment variable.
    """
    folder, name = os.environ.get("TUNE_ORIG_WORKING_DIR"), str(error.filename or "")
    if not folder or not name or Path(name).is_absolute() or not Path(folder, name).exists():
        return
    raise WorkloadError(
        f"{name!r} is not in the folder of the trial, where its code runs: write the absolute "
        f"path, {str(Path(folder, name))!r}"
    ) from error


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
            saved_epoch(folder / KEPT_FOLDER)
            if missing := set(head["files"]) - files.keys():
                raise DamagedCheckpointError(f"{folder / KEPT_FOLDER} lacks {', '.join(missing)}")
            self._write = lambda path: write_checkpoint_files(path, files)
        else:
            self._write = snapshot()

    @property
    def iteration(self) -> int:
        """Its number, from 1; 0 without one."""
        return self._iteration
