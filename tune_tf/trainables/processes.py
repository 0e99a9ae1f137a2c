"""Processes that train for a trial beside its own actor: their start, calls, failure and end."""

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import (
    TuneTfError,
    WorkerError,
    WorkerLostError,
)
from tune_tf.resources import TrialResources
from tune_tf.trainables.checkpoint_files import (
    Files,
    checkpoint_of,
    files_of,
    read_checkpoint_files,
    saved_epoch,
    write_checkpoint_files,
)
from tune_tf.trainables.trial_process import PickledWorkload, TrialProcess, TrialStart
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.trainables.trial_trainable import TrialTrainable
from tune_tf.workload import Config

_FINISH_S = 10  # for the callbacks at the end of a trial

# Errors of TensorFlow's collectives and of Ray after the loss of a peer; found by killing peers.
_LOST_PEER = (
    *("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"),
    *("RayActorError", "ActorDiedError", "ActorUnavailableError"),
)


@dataclass(frozen=True)
class WorkerSetup:
    """Setup of a worker for all trials that it serves; ``resources`` are those of the worker."""

    workload: PickledWorkload
    resources: TrialResources
    settings: TrialSettings


class Worker(TrialProcess):
    """Process that trains for a trial outside its actor; other nodes reach it at ``host``."""

    def __init__(self, rank: int, host: str, name: str) -> None:
        super().__init__()
        self._rank = rank
        self._host = host
        self._name = name

    def __str__(self) -> str:
        """Return the name of the process for messages."""
        return f"{self._name} on {self._host}"

    def set_up(self, setup: WorkerSetup) -> str:
        """Load the workload, claim this process' devices and describe them."""
        setup.workload.load(str(self))  # tells what is not installed here
        self._parallelism = setup.settings.parallelism
        self.claim(setup.workload, setup.settings, setup.resources, 1)
        return f"{self.devices} on {self._host}"

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

    def __init__(self, worker_class: type[Worker], rank: int, name: str) -> None:
        self._worker = worker_class(rank, ray.util.get_node_ip_address(), name)

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
            raise kind(f"{self._worker}: {traceback.format_exc()}") from None


_REMOTE_ACTOR = ray.remote(max_restarts=0)(WorkerActor)


class Bundles:
    """Bundles of a trial that Tune has reserved, one per process, in which its processes start.

    Without Tune, Ray places each process by itself.

    Attributes:
        shares: Resources of each process.
    """

    def __init__(self, settings: TrialSettings, reserved: Any) -> None:
        self._group = None if reserved is None else ray.util.get_current_placement_group()
        if self._group is None:
            self.shares: Sequence[TrialResources] = settings.parallelism.shares(settings.resources)
        else:
            bundles = [bundle for bundle in reserved.bundles if bundle]
            self.shares = [TrialResources.of_bundle(bundle) for bundle in bundles]

    def start(
        self, worker_class: type[Worker], rank: int, bundle: int, name: str, *, guest: bool = False
    ) -> Any:
        """Return the actor of a process; a ``guest`` shares the resources of another process."""
        share, options = self.shares[bundle], dict[str, Any]()
        if self._group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=bundle
            )
        return _REMOTE_ACTOR.options(
            num_cpus=0 if guest else share.cpus, num_gpus=0 if guest else share.gpus, **options
        ).remote(worker_class, rank, name)

    def start_workers(self, worker_class: type[Worker]) -> list[Any]:
        """Return the actors of workers, one in each bundle."""
        ranks = range(len(self.shares))
        return [self.start(worker_class, rank, rank, f"worker {rank}") for rank in ranks]


class ProcessGroup:
    """Processes that train for a trial; ``devices`` describes theirs.

    The first failure ends all of them, because the others would wait forever.
    """

    devices = ""
    _actors: Sequence[Any] = ()

    def call(
        self,
        method: str,
        *arguments: Any,
        actors: Sequence[Any] | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call a method of all processes, or of some; return the results in their order."""
        if not self._actors:
            raise WorkerLostError("the workers of this trial have ended")
        calls = [actor.call.remote(method, *arguments) for actor in actors or self._actors]
        return self._results(calls, timeout_s)

    def _results(self, calls: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Return the results of calls; the first failure, or a timeout, ends all processes."""
        with self._ending_on_failure():
            results: dict[Any, Any] = {}
            pending = list(calls)
            while pending:
                finished, pending = ray.wait(pending, timeout=timeout_s)
                results |= zip(finished, ray.get(finished), strict=True)
                if not finished:
                    raise WorkerLostError(
                        f"the workers did not connect within {timeout_s:g} s: check that their "
                        "nodes can reach each other on any port"
                    )
            return [results[call] for call in calls]

    @contextlib.contextmanager
    def _ending_on_failure(self) -> Iterator[None]:
        """End all processes if an error is raised in this context."""
        try:
            yield
        except BaseException as error:
            self.end()
            cause = _cause_of(error)
            if cause is error:
                raise
            raise cause from None

    def write_checkpoint(self, folder: Path) -> None:
        """Write the full training state into a folder of this node."""
        write_checkpoint_files(folder, self.call("state", actors=self._holders)[0])

    def snapshot(self) -> Callable[[Path], None]:
        """Return a writer of the state that the metrics of the last epoch belong to."""
        files = self.call("epoch_state", actors=self._holders)[0]
        return lambda folder: write_checkpoint_files(folder, files)

    def read_checkpoint(self, folder: Path) -> None:
        """Restore a checkpoint of any trainable of tune_tf, with any number of replicas."""
        saved_epoch(folder)  # processes that cannot read it would end
        self.call("restore", ray.put(read_checkpoint_files(folder)), actors=self._holders)

    @property
    def _holders(self) -> Sequence[Any]:
        """Actors that hold the trial's state."""
        return self._actors

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self.call("start", trial)

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        actors, self._actors = self._actors, ()
        if finish and actors:
            calls = [actor.call.remote("finish") for actor in actors]
            ray.wait(calls, num_returns=len(calls), timeout=_FINISH_S)
        for actor in actors:
            ray.kill(actor)


def _cause_of(error: BaseException) -> BaseException:
    """Return the exception that a trial should raise for a failed call."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    if isinstance(error, RayError) and not isinstance(error, OutOfMemoryError):
        return WorkerLostError(f"a process of the trial died: {error}")
    return error


class ProcessTrainable(TrialTrainable):
    """Base trainable that trains in separate processes and does not load TensorFlow itself.

    Without Tune it needs a Ray cluster and reserves the trial's resources itself.
    """

    group_class: ClassVar[Any]

    def set_up_processes(self, config: Config) -> None:
        """Start a process in each bundle, and begin the first trial."""
        bundles = Bundles(self._settings, self.trial_resources)
        setup = WorkerSetup(self._workload, bundles.shares[0], self._settings)
        self._processes = self.group_class(setup, bundles)
        self._begin(config)

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._processes.end(finish=True)
