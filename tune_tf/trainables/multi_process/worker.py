"""Worker process of a trial that trains in several processes, and its Ray actor."""

import importlib.metadata
import platform
import socket
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import (
    CheckpointError,
    TuneTfError,
    WorkerError,
    WorkerLostError,
    WorkloadError,
)
from tune_tf.resources import TrialResources
from tune_tf.trainables.trial_process import TrialProcess
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.training.rendezvous import WorkerInfo
from tune_tf.workload import Workload

if TYPE_CHECKING:
    from tune_tf.training.core.checkpoint import Checkpoint

_VERSIONED = ("tensorflow", "keras", "numpy")

# Errors of TensorFlow's collectives after the loss of a peer; found by killing peers.
_LOST_PEER = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")

Files = dict[str, bytes]
"""Checkpoint files by name, for transfer between processes and nodes."""


def write_checkpoint_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files in order, each atomically."""
    for name, content in files.items():
        write_atomically(folder / name, content, on_disk=False)


def read_checkpoint_files(folder: Path) -> Files:
    """Return the files of a checkpoint's folder."""
    try:
        return {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.is_file() and not path.name.startswith(".")
        }
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint at {folder}") from None


def files_of(checkpoint: "Checkpoint") -> Files:
    """Return the files of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(Path(folder))
        return read_checkpoint_files(Path(folder))


def checkpoint_of(files: Files) -> "Checkpoint":
    """Return the checkpoint stored in files."""
    from tune_tf.training.core.checkpoint import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint_files(Path(folder), files)
        return Checkpoint.read(Path(folder))


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
        """Return the unpickled workload; ``where`` names the worker in messages."""
        try:
            workload: Workload = cloudpickle.loads(self.content, buffers=self.arrays)
        except Exception as error:
            raise WorkloadError(
                f"{where} cannot import the workload ({type(error).__name__}: {error}): its module "
                "and everything that it imports must be installed on every node, or sent there "
                "with Ray's runtime_env (working_dir, pip)"
            ) from error
        return workload


@dataclass(frozen=True)
class WorkerSetup:
    """Setup of a worker for all trials that it serves; ``resources`` are those of the worker."""

    workload: PickledWorkload
    resources: TrialResources
    settings: TrialSettings


class WorkerProcess(TrialProcess):
    """Process that trains for a trial outside its actor; other nodes reach it at ``host``."""

    def __init__(self, rank: int, host: str, name: str) -> None:
        super().__init__()
        self._rank = rank
        self._host = host
        self._name = name

    def __str__(self) -> str:
        """Return the name of the process for messages."""
        return f"{self._name} on {self._host}"

    def set_up(self, setup: WorkerSetup) -> None:
        """Load the workload and claim this process' devices."""
        workload = setup.workload.load(str(self))
        self._parallelism = setup.settings.parallelism
        num_devices = self._parallelism.replicas_per_worker
        self.claim(workload, setup.settings, setup.resources, num_devices)


class Worker(WorkerProcess):
    """Worker that connects to its peers and trains one trial after another with them."""

    def meet(self, setup: WorkerSetup) -> WorkerInfo:
        """Load the workload, claim this process' devices and describe the worker."""
        self.set_up(setup)
        import tensorflow as tf

        # Bound until TensorFlow takes over, so that no other process gets the same port.
        self._port = socket.socket()
        self._port.bind(("", 0))
        return WorkerInfo(
            self._rank,
            self._host,
            f"{self._host}:{self._port.getsockname()[1]}",
            {name: importlib.metadata.version(name) for name in _VERSIONED}
            | {"Python": ".".join(platform.python_version_tuple()[:2])},
            len(tf.config.get_visible_devices("GPU")),
            str(self.devices),
        )

    def join(self, addresses: tuple[str, ...]) -> None:
        """Connect to the other workers at their addresses, ``host:port`` by rank."""
        from tune_tf.training.core.loop import GraphLoop
        from tune_tf.training.core.replicas import MultiWorkerReplicas, Replicas

        self._port.close()
        self._discards_files = self._rank > 0
        replicas = (
            MultiWorkerReplicas(self.devices, addresses, self._rank)
            if len(addresses) > 1
            else Replicas(self.devices)
        )
        frozen = self.frozen_outputs(replicas)
        loop = GraphLoop(replicas, self._parallelism, frozen=frozen)
        self.serve(loop, replicas)

    def state(self) -> Files | None:
        """Return the trial's checkpoint; None on all workers but the first.

        All workers must call this: some variables are reduced over the workers when read.
        """
        checkpoint = self._loop.state()
        return None if self._rank else files_of(checkpoint)

    def epoch_state(self) -> Files | None:
        """Return the checkpoint of the last epoch, like :meth:`state` but before its end."""
        checkpoint = self._loop.epoch_state()
        return None if self._rank else files_of(checkpoint)

    def restore(self, files: Files) -> None:
        """Restore a checkpoint, possibly from another number of workers."""
        self._loop.restore(checkpoint_of(files))


class WorkerActor:
    """Ray actor of a worker, with errors that can be read without TensorFlow."""

    def __init__(self, worker_class: type[WorkerProcess], rank: int, name: str) -> None:
        host = ray.util.get_node_ip_address()
        self._label = f"{name} on {host}"
        self._worker = worker_class(rank, host, name)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker.

        A foreign error becomes a :class:`WorkerError` with its text, because the caller must not
        load TensorFlow to unpickle it.
        """
        try:
            return getattr(self._worker, method)(*arguments)
        except TuneTfError:
            raise
        except Exception as error:  # noqa: BLE001  raised again by the caller
            kind = WorkerLostError if type(error).__name__ in _LOST_PEER else WorkerError
            raise kind(f"{self._label}: {traceback.format_exc()}") from None

    @ray.method(concurrency_group="ping")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Respond, also while the worker trains."""
