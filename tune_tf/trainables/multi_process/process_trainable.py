"""Base classes for trials that train in separate processes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import ray

from tune_tf.errors import UnavailableResourcesError, WorkerLostError
from tune_tf.trainables.multi_process.processes import Bundles, ProcessHandle
from tune_tf.trainables.multi_process.worker import (
    WorkerSetup,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.trainables.trial_trainable import TrialTrainable
from tune_tf.training.rendezvous import WorkerInfo, compatible_addresses
from tune_tf.workload import Config


class ProcessGroup:
    """Base class of the processes that train one model; ``devices`` describes theirs."""

    def __init__(self, setup: WorkerSetup, bundles: Bundles) -> None:
        self._setup = setup
        self._bundles = bundles
        self._processes: list[ProcessHandle] = []  # those that hold the trial's state
        self.devices = ""

    def call(
        self,
        method: str,
        *arguments: Any,
        watched: bool = True,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call a method of all processes that hold the trial's state; return the results by rank.

        If one fails, all processes end, and its error is raised. Silence counts as a failure if
        ``watched``: not while workers load modules or data. Without ``timeout_s``, the call may
        take any time.
        """
        if not self._processes:
            raise WorkerLostError("the workers of this trial have ended")
        calls = [process.call(method, *arguments) for process in self._processes]
        for process in self._processes:
            process.watch(watched)
        try:
            return self._bundles.wait_for(calls, self._processes, timeout_s)
        except BaseException as error:  # noqa: BLE001  raised again there
            self._fail(error)

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node."""
        write_checkpoint_files(folder, self.call("state")[0])

    def snapshot(self) -> Callable[[Path], None]:
        """Return a writer of the state that the metrics of the last epoch belong to."""
        files = self.call("epoch_state")[0]
        return lambda folder: write_checkpoint_files(folder, files)

    def read_checkpoint(self, folder: Path) -> None:
        """Restore a checkpoint of any trainable of tune_tf, with any number of replicas."""
        self.call("restore", ray.put(read_checkpoint_files(folder)))

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        processes, self._processes = self._processes, []
        self._bundles.end(processes, processes if finish else [])

    def _check_compatible(self, workers: Sequence[WorkerInfo]) -> tuple[str, ...]:
        """Return the addresses of workers; end all processes if they cannot train together."""
        try:
            return compatible_addresses(workers)
        except UnavailableResourcesError:
            self.end()
            raise

    def _fail(self, error: BaseException) -> NoReturn:
        """End all processes and raise the trial's error."""
        cause = self._bundles.failure(error, self._processes)
        self.end()
        if cause is error:
            raise error
        raise cause from None


class ProcessTrainable(TrialTrainable):
    """Base trainable that trains in separate processes and does not load TensorFlow itself.

    Without Tune it needs a Ray cluster and reserves the trial's resources itself.
    """

    group_class: ClassVar[Any]

    def set_up_processes(self, config: Config) -> None:
        """Start a process in each bundle, and begin the first trial."""
        settings = self._settings
        self._bundles = Bundles.reserve(
            self.trial_resources, settings.parallelism, settings.resources
        )
        try:
            setup = WorkerSetup(self._workload, self._bundles.shares[0], settings)
            self._processes = self.group_class(setup, self._bundles)
            self._begin(config)
        except BaseException:
            self._bundles.release()
            raise

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._processes.end(finish=True)
        self._bundles.release()
