"""Base trainable of all kinds of parallelism."""

import abc
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from traceback import format_exception
from typing import Any

from ray import tune
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from tune_tf.errors import WorkloadError
from tune_tf.events import log_path
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause, infer_outcome
from tune_tf.trainables.best_epoch import BestEpoch
from tune_tf.trainables.memory.recycling import RECYCLE
from tune_tf.trainables.memory.retry_resources import micro_batches_of
from tune_tf.trainables.trial_process import TrialStart
from tune_tf.trainables.trial_settings import TrialSettings, seed_of_trial
from tune_tf.workload import Config


class TrialTrainable(tune.Trainable, abc.ABC):
    """Base trainable with one epoch per iteration; :func:`tune_tf.trainable` sets it up.

    A reused actor keeps its processes, traced programs and data. What trains is a
    :class:`TrialProcess` or a group of processes with the same methods.
    """

    _processes: Any
    _setup_error: Exception | None = None  # out of memory

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
            cannot_shrink = isinstance(error.__cause__, WorkloadError)
            if self.trial_resources is None or cannot_shrink or not is_oom:
                raise
            self._setup_error = error  # Tune retries no trial that fails before its first step

    @abc.abstractmethod
    def set_up_processes(self, config: Config) -> None:
        """Set what trains, and begin the first trial."""

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
            result[STOP_CAUSE] = f"{cause}: {report.divergence}" if report.divergence else cause
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

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state from a folder of this node, with any number of replicas or devices."""
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
