"""Worker process of a trial that trains in several processes.

TensorFlow is imported in methods only, so that the trial's actor does not load it.
"""

import contextlib
import importlib.metadata
import os
import platform
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ray import cloudpickle

from tune_tf.errors import WorkloadError
from tune_tf.events import TrialLog
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.tracking.mlflow_internals import stop_autologging
from tune_tf.tracking.trial_run import enter_trial, leave_trial
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.memory.recycling import Recycling
from tune_tf.trainables.mirrored import make_system_metrics
from tune_tf.trainables.multi_process.checkpoint_files import (
    Files,
    read_checkpoint_files,
    write_checkpoint_files,
)
from tune_tf.training.peak_memory import peak_memory_result
from tune_tf.training.rendezvous import WorkerInfo
from tune_tf.workload import Config, Workload

if TYPE_CHECKING:
    from tune_tf.data import LoadCache, SharedLoads
    from tune_tf.training.core.checkpoint import Checkpoint
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices
    from tune_tf.training.system_metrics import SystemMetrics

_VERSIONED = ("tensorflow", "keras", "numpy")


@dataclass(frozen=True)
class PickledWorkload:
    """Pickled workload, for transfer through processes that cannot import its module.

    Its arrays are shared without a copy and are read-only in the worker.
    """

    content: bytes
    arrays: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, workload: Workload) -> "PickledWorkload":
        """Pickle a workload, by value if other nodes cannot import its class."""
        arrays: list[PickleBuffer] = []
        content = cloudpickle.dumps(workload, protocol=5, buffer_callback=arrays.append)
        return cls(content, tuple(bytes(array.raw()) for array in arrays))

    def load(self, where: str) -> Workload:
        """Return the unpickled workload; ``where`` names the worker in messages.

        Raises:
            WorkloadError: It cannot be imported here.
        """
        try:
            made = cloudpickle.loads(self.content, buffers=self.arrays)
        except Exception as error:
            raise WorkloadError(
                f"{where} cannot import the workload ({type(error).__name__}: {error}): its module "
                "and everything that it imports must be installed on every node, or sent there "
                "with Ray's runtime_env (working_dir, pip)"
            ) from error
        if not isinstance(made, Workload):
            raise WorkloadError(f"the workload must be a tune_tf.Workload, not {type(made)}")
        return made


@dataclass(frozen=True)
class WorkerAssignment:
    """Setup of a worker for all trials that it serves.

    Args:
        workload: Workload of the trials.
        resources: Resources of this worker.
        spread: Parallelism within the worker.
        tracking: MLflow settings of the trials; None without runs.
        recycling: Limits after which the process serves no other trial.
        data_id: Key under which the processes of a node share the workload's data; None to load it
            separately.
    """

    workload: PickledWorkload
    resources: TrialResources
    spread: Mirrored = Mirrored()  # noqa: RUF009  frozen
    tracking: TrialTracking | None = None
    recycling: Recycling = field(default_factory=Recycling)
    data_id: str | None = None


@dataclass(frozen=True)
class TrialStart:
    """Start message of a trial.

    Args:
        trial_id: Ray Tune's id of the trial.
        config: Hyperparameters.
        seed: Seed of weights, dropout and data order.
        log: Log file of its processes; None for no log.
    """

    trial_id: str
    config: dict[str, Any]
    seed: int
    log: Path | None = None


@dataclass(frozen=True)
class EpochReport:
    """Report of a worker after an epoch.

    Args:
        metrics: Metrics by Keras name, over the rows of all workers.
        stop_training: Whether a callback requested the end of the trial.
        recycle: Whether the process should serve no other trial.
        system_metrics: Load of the worker's machine and training speed, by result key.
    """

    metrics: dict[str, Any]
    stop_training: bool
    recycle: bool
    system_metrics: dict[str, float]


class TrialProcess:
    """Base class of the processes that train for a trial outside its actor.

    Args:
        rank: Number of the process in the trial, from 0.
        host: Address of its node, as other nodes reach it.
        node: Name of its node, for messages.
    """

    def __init__(self, rank: int, host: str, node: str) -> None:
        self._rank = rank
        self._host = host
        self._node = node
        self._trial_id = ""
        self._log = TrialLog()
        self._assignment: WorkerAssignment
        self._system_metrics: SystemMetrics | None
        self._workload: Workload
        self._floatx: str
        self._loads: SharedLoads
        self._devices: Devices

    def __str__(self) -> str:
        """Return the name of the process for messages."""
        return f"worker {self._rank} on {self._node}"

    def _claim(self, assignment: WorkerAssignment) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self._assignment = assignment
        self._workload = assignment.workload.load(str(self))
        self._system_metrics = make_system_metrics(assignment.tracking, assignment.resources)
        import keras

        from tune_tf.data import SharedLoads
        from tune_tf.training.devices import claim_devices

        self._floatx = keras.config.floatx()
        self._loads = SharedLoads(self._workload, assignment.data_id, self._floatx)
        self._devices = claim_devices(assignment.resources, assignment.spread.num_replicas)

    @contextlib.contextmanager
    def _beginning(self, trial: TrialStart) -> Iterator[None]:
        """Set up log, MLflow run and system metrics around the start of a trial."""
        self._trial_id = trial.trial_id
        self._log.begin(trial.log)
        enter_trial(trial.trial_id, self._assignment.tracking, starting=True)
        self._stop_autologging()
        yield
        self._stop_autologging()  # the workload's code may have enabled it
        if self._system_metrics is not None:
            self._system_metrics.begin()

    def _enter(self) -> None:
        enter_trial(self._trial_id, self._assignment.tracking)

    def _is_recycled(self, num_programs: int) -> bool:
        return self._assignment.recycling.is_due(num_programs)

    def _sampled(self) -> dict[str, float]:
        return {} if self._system_metrics is None else self._system_metrics.sample()

    def _stop_autologging(self) -> None:
        """Prevent MLflow from creating a second run for a tracked trial."""
        if self._assignment.tracking is not None:
            stop_autologging()


def files_of(state: "Checkpoint") -> Files:
    """Return the files of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        state.write(Path(folder))
        return read_checkpoint_files(folder)


def checkpoint_of(files: Files) -> "Checkpoint":
    """Return the checkpoint stored in files.

    Raises:
        CheckpointError: The files are no checkpoint.
    """
    from tune_tf.training.core.checkpoint import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint_files(folder, files)
        return Checkpoint.read(Path(folder))


class Worker(TrialProcess):
    """Worker that connects to its peers and trains one trial after another with them."""

    def __init__(self, rank: int, host: str, node: str) -> None:
        super().__init__(rank, host, node)
        self._port: socket.socket | None = None
        self._loop: Any
        self._data: LoadCache[Any]

    def meet(self, assignment: WorkerAssignment) -> WorkerInfo:
        """Load the workload, claim this process' devices and describe the worker.

        Raises:
            WorkloadError: The workload cannot be imported on this node.
            UnavailableResourcesError: The reserved devices are missing.
        """
        self._claim(assignment)
        import tensorflow as tf

        # Bound until TensorFlow takes over, so that no other process gets the same port.
        self._port = socket.socket()
        self._port.bind(("", 0))
        return WorkerInfo(
            self._rank,
            self._node,
            f"{self._host}:{self._port.getsockname()[1]}",
            {name: importlib.metadata.version(name) for name in _VERSIONED}
            | {"Python": ".".join(platform.python_version_tuple()[:2])},
            len(tf.config.get_visible_devices("GPU")),
            str(self._devices),
        )

    def join(self, addresses: tuple[str, ...]) -> None:
        """Connect to the other workers at their addresses, ``host:port`` by rank.

        Raises:
            PortTakenError: Another process has taken this worker's port.
        """
        from tune_tf.training.core.loop import GraphLoop
        from tune_tf.training.core.replicas import MultiWorkerReplicas, Replicas

        self._leave_port()
        replicas = (
            MultiWorkerReplicas(self._devices, addresses, self._rank)
            if len(addresses) > 1
            else Replicas(self._devices)
        )
        self._serve(GraphLoop(self._workload, replicas, self._assignment.spread), replicas)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._loop.finish()
        with self._beginning(trial):
            self._loop.start(trial.config, self._data.get(trial.config), trial.seed)

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch, together with the other workers."""
        self._enter()
        return self._report(self._loop.epoch())

    def state(self) -> Files | None:
        """Return the trial's checkpoint; None on all workers but the first.

        All workers must call this: some variables are reduced over the workers when read.
        """
        state = self._loop.state()
        return None if self._rank else files_of(state)

    def restore(self, files: Files) -> None:
        """Restore a checkpoint, possibly from another number of workers."""
        self._loop.restore(checkpoint_of(files))

    def finish(self) -> None:
        """End the trial."""
        self._loop.finish()
        leave_trial()

    def _serve(self, loop: Any, replicas: "Replicas | None") -> None:
        """Train with a loop from now on; without replicas, hold no rows on a device."""
        from tune_tf.data import LoadCache, rows_of
        from tune_tf.training.input.device_rows import place_rows

        def load(config: Config) -> Any:
            return place_rows(rows_of(self._loads.load(config), floatx=self._floatx), replicas)

        self._loop = loop
        self._data = LoadCache(load)

    def _leave_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _report(self, metrics: dict[str, Any]) -> EpochReport:
        recycle = self._is_recycled(self._loop.num_programs)
        load = self._sampled() | self._loop.performance | peak_memory_result()
        return EpochReport(metrics, self._loop.stop_training, recycle, load)
