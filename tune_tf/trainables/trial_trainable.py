"""Base trainable of all kinds of parallelism."""

import abc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from tune_tf.events import log_path
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.memory.recycling import RECYCLE
from tune_tf.trainables.memory.retry_resources import micro_batches_of
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.trainables.trial_settings import TrialSettings, seed_of_trial
from tune_tf.workload import Config


class TrialTrainable(tune.Trainable, abc.ABC):
    """Base trainable with one epoch per iteration; :func:`tune_tf.trainable` sets it up.

    A reused actor keeps its processes, traced programs and data.
    """

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
        self._micro_batches = micro_batches_of(self.trial_resources, declared)
        self._saving = self._micro_batches > declared.micro_batches  # after it ran out of memory
        self._parallelism = replace(declared, micro_batches=self._micro_batches)
        self._settings = replace(settings, parallelism=self._parallelism)
        self._workload = workload
        self._clock = clock
        self.set_up_processes(config)

    @abc.abstractmethod
    def set_up_processes(self, config: Config) -> None:
        """Claim the devices of the trials, and begin the first trial."""

    @abc.abstractmethod
    def begin(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""

    @abc.abstractmethod
    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node."""

    @abc.abstractmethod
    def read_checkpoint(self, folder: Path) -> None:
        """Restore the state from a folder of this node, with any number of replicas."""

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the full training state into a folder of this node."""
        self.write_checkpoint(Path(checkpoint_dir))
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore the state from a folder of this node."""
        self.read_checkpoint(Path(checkpoint))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial, with the same numbers as in a fresh process."""
        self._begin(new_config)
        return True

    def _begin(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        log = log_path(self._settings.log_folder, self.trial_name)
        self.begin(TrialStart(self.trial_id, dict(config), self._seed(), log))

    def _seed(self) -> int:
        return seed_of_trial(self._settings.seed, self.trial_id, self.trial_name)

    def _result(self, report: EpochReport, devices: str, iteration: int) -> dict[str, Any]:
        result = epoch_result(
            report.metrics,
            iteration=iteration,
            stop_training=report.stop_training,
            devices=devices,
        )
        interval = self._settings.checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if report.recycle:
            result[RECYCLE] = True
        result |= report.system_metrics
        if self._saving:
            result["micro_batches"] = self._micro_batches
        return result
