"""Base trainables for trials that train in separate processes."""

import abc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT
from ray.util.placement_group import PlacementGroup

from tune_tf.events import log_path
from tune_tf.resources import TrialResources
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.memory.memory_saving import micro_batches_of
from tune_tf.trainables.memory.recycling import RECYCLE
from tune_tf.trainables.multi_process.bundles import Bundles
from tune_tf.trainables.multi_process.checkpoint_files import (
    Files,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.trainables.multi_process.heartbeat import Watch
from tune_tf.trainables.multi_process.worker import (
    EpochReport,
    PickledWorkload,
    TrialStart,
    WorkerAssignment,
)
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.workload import Config


class Processes(Protocol):
    """Protocol of the processes that train one model."""

    @property
    def devices(self) -> str:
        """Description of the devices, for reports."""

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report and further result keys."""

    def state(self) -> Files:
        """Return the trial's checkpoint."""

    def restore(self, files: Any) -> None:
        """Restore a checkpoint from a Ray reference to :data:`Files`."""

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""


class ProcessTrainable(tune.Trainable, abc.ABC):
    """Base trainable that trains in separate processes.

    It does not load TensorFlow and survives the crash of a process. A reused actor keeps its
    processes.

    Without Tune it needs a Ray cluster and reserves the trial's resources itself.
    """

    @abc.abstractmethod
    def make_processes(
        self,
        assignment: WorkerAssignment,
        shares: Sequence[TrialResources],
        placement_group: PlacementGroup,
        watch: Watch,
    ) -> Any:
        """Start the processes, with one share of the resources for each bundle."""

    @abc.abstractmethod
    def begin(self, trial: TrialStart) -> None:
        """Begin a trial in the processes, after ending the previous one."""

    def setup(
        self,
        config: Config,
        *,
        workload: PickledWorkload,
        settings: TrialSettings,
        watch: Watch = Watch(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the processes and begin the first trial.

        Raises:
            UnavailableResourcesError: There is no Ray cluster, or it is full.
        """
        parallelism = settings.parallelism
        self._settings = settings
        self._parallelism = parallelism
        self._clock = clock
        self._micro_batches = micro_batches_of(self.trial_resources, parallelism)
        self._saving = self._micro_batches > parallelism.micro_batches  # it ran out of memory
        self._bundles = Bundles(self.trial_resources, parallelism, settings.resources)
        shares = self._bundles.shares
        try:
            self._processes = self.make_processes(
                WorkerAssignment(
                    workload,
                    shares[0],
                    replace(parallelism.worker_parallelism, micro_batches=self._micro_batches),
                    settings.tracking,
                    settings.recycling,
                    settings.data_id,
                ),
                shares,
                self._bundles.placement_group,
                watch,
            )
            self._start(config)
        except BaseException:
            self._bundles.give_back()
            raise

    def _result(self, report: EpochReport, iteration: int) -> dict[str, Any]:
        result = epoch_result(
            report.metrics,
            iteration=iteration,
            stop_training=report.stop_training,
            devices=self._processes.devices,
        )
        if self._saving:
            result["micro_batches"] = self._micro_batches
        interval = self._settings.checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if report.recycle:
            result[RECYCLE] = True
        return result | report.system_metrics

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in these processes, with the same numbers as in fresh ones."""
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._processes.end(finish=True)
        self._bundles.give_back()

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        seed = seed_of_trial(self._settings.seed, self.trial_id, self.trial_name)
        log = log_path(self._settings.log_folder, self.trial_name)
        self.begin(TrialStart(self.trial_id, dict(config), seed, log))


class SingleModelTrainable(ProcessTrainable):
    """Base trainable for one model in separate processes, one epoch per iteration."""

    _processes: Processes

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        report, more = self._processes.epoch()
        return self._result(report, self.iteration + 1) | more

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the full training state into a folder of this node."""
        write_checkpoint_files(checkpoint_dir, self._processes.state())
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore a checkpoint of any trainable of tune_tf, with any number of replicas."""
        self._processes.restore(ray.put(read_checkpoint_files(checkpoint)))
        self._last_checkpoint = self._clock()

    def begin(self, trial: TrialStart) -> None:
        """Begin a trial in the processes."""
        self._processes.start(trial)
