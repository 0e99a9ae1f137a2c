"""Base trainables for trials that train in separate processes."""

import abc
from pathlib import Path
from typing import Any, NoReturn

import ray

from tune_tf.trainables.multi_process.processes import Bundles, RemoteProcess
from tune_tf.trainables.multi_process.worker import (
    Files,
    WorkerAssignment,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.trainables.trial_trainable import TrialTrainable
from tune_tf.workload import Config


class ProcessGroup(abc.ABC):
    """Base class of the processes that train one model.

    Attributes:
        devices: Description of the devices, for reports.
    """

    devices: str = ""

    def __init__(self, assignment: WorkerAssignment, bundles: Bundles) -> None:
        self._assignment = assignment
        self._bundles = bundles

    @abc.abstractmethod
    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""

    @abc.abstractmethod
    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report and further result keys."""

    @abc.abstractmethod
    def state(self) -> Files:
        """Return the trial's checkpoint."""

    @abc.abstractmethod
    def restore(self, files: Any) -> None:
        """Restore a checkpoint from a Ray reference to :data:`Files`."""

    @abc.abstractmethod
    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""

    def _fail(self, error: BaseException, suspects: list[RemoteProcess]) -> NoReturn:
        """End all processes and raise the trial's error."""
        cause = self._bundles.failure(error, suspects)
        self.end()
        if cause is error:
            raise error
        raise cause from None


class ProcessTrainable(TrialTrainable):
    """Base trainable that trains in separate processes.

    It does not load TensorFlow and survives the crash of a process. Without Tune it needs a Ray
    cluster and reserves the trial's resources itself.
    """

    _processes: Any

    @abc.abstractmethod
    def start_processes(self, assignment: WorkerAssignment, bundles: Bundles) -> None:
        """Start the processes, one in each bundle, and keep them as ``_processes``."""

    def set_up_processes(self, config: Config) -> None:
        """Start the processes and begin the first trial."""
        settings = self._settings
        self._bundles = Bundles.reserve(
            self.trial_resources, settings.parallelism, settings.resources
        )
        try:
            share = self._bundles.shares[0]
            self.start_processes(WorkerAssignment(self._workload, share, settings), self._bundles)
            self._begin(config)
        except BaseException:
            self._bundles.give_back()
            raise

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._processes.end(finish=True)
        self._bundles.give_back()


class SingleModelTrainable(ProcessTrainable):
    """Base trainable for one model in separate processes, one epoch per iteration."""

    _processes: ProcessGroup

    def begin(self, trial: TrialStart) -> None:
        """Begin a trial in the processes."""
        self._processes.start(trial)

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        report, more = self._processes.epoch()
        return self._result(report, self._processes.devices, self.iteration + 1) | more

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node."""
        write_checkpoint_files(folder, self._processes.state())

    def read_checkpoint(self, folder: Path) -> None:
        """Restore a checkpoint of any trainable of tune_tf, with any number of replicas."""
        self._processes.restore(ray.put(read_checkpoint_files(folder)))
