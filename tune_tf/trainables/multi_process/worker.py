"""One process of a trial that several processes train together.

Loads TensorFlow in its methods only: whoever starts workers elsewhere stays free of it.
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
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices
    from tune_tf.training.system_metrics import SystemMetrics

_VERSIONED = ("tensorflow", "keras", "numpy")


@dataclass(frozen=True)
class PickledWorkload:
    """A workload on its way to the workers, through processes that must not import its module.

    Its arrays are read-only there, as in a trial of one process, and copied by nobody.

    Args:
        content: What pickle made of it.
        arrays: The memory of its arrays.
    """

    content: bytes
    arrays: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, workload: Workload) -> "PickledWorkload":
        """Return a workload in this form, its class too where other nodes cannot import it."""
        arrays: list[PickleBuffer] = []
        content = cloudpickle.dumps(workload, protocol=5, buffer_callback=arrays.append)
        return cls(content, tuple(bytes(array.raw()) for array in arrays))

    def load(self, where: str) -> Workload:
        """Return the workload.

        Args:
            where: Which worker this is, for the message.

        Raises:
            WorkloadError: It cannot be imported here.
        """
        try:
            made = cloudpickle.loads(self.content, buffers=self.arrays)
        except Exception as error:
            raise WorkloadError(
                f"{where} cannot import the workload ({type(error).__name__}: {error}): its module "
                "and all that it imports must be installed on every node, or be sent there by "
                "Ray's runtime_env (working_dir, pip)"
            ) from error
        if not isinstance(made, Workload):
            raise WorkloadError(f"the workload must be a tune_tf.Workload, not {type(made)}")
        return made


@dataclass(frozen=True)
class WorkerAssignment:
    """What a worker does for all the trials that it serves.

    Args:
        workload: What the trials train.
        resources: What this worker reserved.
        spread: How it spreads its part over its devices.
        tracking: Where the trials' MLflow runs are; None if they have none.
        recycling: When the process has traced too much to serve another trial.
        data_id: Names the workload's data, for the processes of a node to share them; None if each
            loads them by itself.
    """

    workload: PickledWorkload
    resources: TrialResources
    spread: Mirrored = Mirrored()  # noqa: RUF009  frozen
    tracking: TrialTracking | None = None
    recycling: Recycling = field(default_factory=Recycling)
    data_id: str | None = None


@dataclass(frozen=True)
class TrialStart:
    """A trial that begins.

    Args:
        trial_id: Ray Tune's id.
        config: Its values.
        seed: Of its weights, dropout and data order.
        log: Where its processes write to; None for no log.
    """

    trial_id: str
    config: dict[str, Any]
    seed: int
    log: Path | None = None


@dataclass(frozen=True)
class EpochReport:
    """What a worker reports of an epoch.

    Args:
        metrics: By Keras' names; over the rows of all workers.
        stop_training: Whether a callback asked to end the trial.
        recycle: Whether the process should not serve another trial.
        system_metrics: The load of the worker's machine and how fast it trains, by key of a result.
    """

    metrics: dict[str, Any]
    stop_training: bool
    recycle: bool
    system_metrics: dict[str, float]


class TrialProcess:
    """What all processes have in common that train for a trial and are no trial's own actor.

    Args:
        rank: Its number in the trial, from 0.
        host: Address of its node, as the other nodes reach it.
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
        """Return who this is, for a message."""
        return f"worker {self._rank} on {self._node}"

    def _claim(self, assignment: WorkerAssignment) -> None:
        """Take over the workload and claim this process' devices.

        Raises:
            WorkloadError: The workload cannot be imported on this node.
            UnavailableResourcesError: The devices reserved are not there.
        """
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
        """Begin a trial around what its user's code does."""
        self._trial_id = trial.trial_id
        self._log.begin(trial.log)
        enter_trial(trial.trial_id, self._assignment.tracking, starting=True)
        self._stop_autologging()
        yield
        self._stop_autologging()  # the workload's code may have switched it on
        if self._system_metrics is not None:
            self._system_metrics.begin()

    def _enter(self) -> None:
        """Let the workload's code find its trial."""
        enter_trial(self._trial_id, self._assignment.tracking)

    def _is_recycled(self, num_programs: int) -> bool:
        """Return whether this process has traced too much to serve another trial."""
        return self._assignment.recycling.is_due(num_programs)

    def _sampled(self) -> dict[str, float]:
        """Return the load of this process, by key of a result."""
        return {} if self._system_metrics is None else self._system_metrics.sample()

    def _stop_autologging(self) -> None:
        """Keep MLflow from making a second run of a trial that has one."""
        if self._assignment.tracking is not None:
            stop_autologging()


def files_of(state: "Checkpoint") -> Files:
    """Return a checkpoint as files."""
    with tempfile.TemporaryDirectory() as folder:
        state.write(Path(folder))
        return read_checkpoint_files(folder)


def checkpoint_of(files: Files) -> "Checkpoint":
    """Return the checkpoint that files hold.

    Raises:
        CheckpointError: They hold none.
    """
    from tune_tf.training.core.checkpoint import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint_files(folder, files)
        return Checkpoint.read(Path(folder))


class Worker(TrialProcess):
    """A worker: it meets the others, joins them, and trains one trial after another with them.

    Args:
        rank: Its number in the trial, from 0.
        host: Address of its node, as the other nodes reach it.
        node: Name of its node, for messages.
    """

    def __init__(self, rank: int, host: str, node: str) -> None:
        super().__init__(rank, host, node)
        self._port: socket.socket | None = None
        self._loop: GraphLoop
        self._data: LoadCache[Any]

    def meet(self, assignment: WorkerAssignment) -> WorkerInfo:
        """Take over the workload, claim this process' devices and say who this is.

        Raises:
            WorkloadError: The workload cannot be imported on this node.
            UnavailableResourcesError: The devices reserved are not there.
        """
        self._claim(assignment)
        import tensorflow as tf

        # Bound until TensorFlow takes over, so that nobody nearby is given the same port.
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
        """Connect with the other workers.

        Args:
            addresses: ``host:port`` of every worker, by rank.

        Raises:
            PortTakenError: This worker's port was taken meanwhile.
        """
        from tune_tf.training.core.loop import GraphLoop
        from tune_tf.training.core.multi_worker_replicas import MultiWorkerReplicas
        from tune_tf.training.core.replicas import Replicas

        self._leave_port()
        replicas = (
            MultiWorkerReplicas(self._devices, addresses, self._rank)
            if len(addresses) > 1
            else Replicas(self._devices)
        )
        self._serve(GraphLoop(self._workload, replicas, self._assignment.spread), replicas)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the one before."""
        self._loop.finish()
        with self._beginning(trial):
            self._loop.start(trial.config, self._data.get(trial.config), trial.seed)

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch, together with the others."""
        self._enter()
        return self._report(self._loop.epoch())

    def state(self) -> Files | None:
        """Return the trial's checkpoint; None from all but the first worker.

        All are asked: some variables are read by reducing them over the workers.
        """
        state = self._loop.state()
        return None if self._rank else files_of(state)

    def restore(self, files: Files) -> None:
        """Go on from a checkpoint, also one that another number of workers made."""
        self._loop.restore(checkpoint_of(files))

    def finish(self) -> None:
        """End the trial."""
        self._loop.finish()
        leave_trial()

    def _serve(self, loop: "GraphLoop", replicas: "Replicas | None") -> None:
        """Train by a loop from now on.

        Args:
            loop: The loop.
            replicas: On whose devices the rows of a trial are; None to keep none of them.
        """
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
        """Return what there is to report of an epoch that was trained."""
        recycle = self._is_recycled(self._loop.num_programs)
        load = self._sampled() | self._loop.performance | peak_memory_result()
        return EpochReport(metrics, self._loop.stop_training, recycle, load)
