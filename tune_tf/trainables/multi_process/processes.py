"""Processes of a trial: their bundles, start, heartbeats, errors and end."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import (
    TuneTfError,
    UnavailableResourcesError,
    WorkerError,
    WorkerLostError,
)
from tune_tf.outcome import Outcome
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.worker import WorkerActor, WorkerProcess

_RESERVATION_S = 60
_REMOTE_ACTOR = ray.remote(concurrency_groups={"ping": 1, "control": 1})(WorkerActor)


@dataclass(frozen=True)
class ProcessTimeouts:
    """Timeouts for lost processes, all in seconds.

    Args:
        ping_interval_s: Time between two pings.
        silent_s: Time without a reply after which a process is lost.
        node_death_s: Additional time for Ray to find out whether the node died, before the trial
            fails.
        retry_s: Time between two pings of an unreachable process.
        join_s: Time for all workers to connect.
        finish_s: Time for the end of a trial, before the processes are killed.
    """

    ping_interval_s: float = 3.0
    silent_s: float = 20.0
    node_death_s: float = 60.0
    retry_s: float = 0.5
    join_s: float = 300.0
    finish_s: float = 10.0


class ProcessHandle:
    """Ray actor of a trial's process, with its heartbeat.

    Silence counts as a failure while it ``is_watched``: not while modules or data load.
    """

    def __init__(
        self, name: str, actor: Any, timeouts: ProcessTimeouts, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.is_watched = False
        self.actor = actor
        self._timeouts = timeouts
        self._clock = clock
        self._ping: Any = None  # at most one in flight
        self._ping_time = clock()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker; return a Ray reference to its result."""
        return self.actor.call.remote(method, *arguments)

    def call_concurrently(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker, concurrently with training."""
        return self.actor.call.options(concurrency_group="control").remote(method, *arguments)

    def watch(self, watched: bool = True) -> None:
        """Count silence as a failure from now on, or do not."""
        self.is_watched = watched
        self._ping = None

    def heartbeat_error(self) -> BaseException | None:
        """Return an error if the process is watched and died or has been silent for too long."""
        if not self.is_watched:
            return None
        now = self._clock()
        if self._ping is not None and ray.wait([self._ping], timeout=0)[0]:
            ping, self._ping = self._ping, None
            try:
                ray.get(ping)
            except RayError as error:
                return cause_of(error)
        if self._ping is None and now - self._ping_time >= self._timeouts.ping_interval_s:
            self._ping, self._ping_time = self.actor.ping.remote(), now
        if self._ping is None or now - self._ping_time <= self._timeouts.silent_s:
            return None
        return WorkerLostError(
            f"{self.name} has not responded for {self._timeouts.silent_s:g} s: its node is down, "
            "unreachable or frozen"
        )

    def kill(self) -> None:
        """Kill the process."""
        ray.kill(self.actor)


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that a trial should raise for a failed call."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    if isinstance(error, RayError) and not isinstance(error, OutOfMemoryError):
        return WorkerLostError(str(error))
    return error


def is_actor_death(error: BaseException) -> bool:
    """Return whether a failed call means that a process died, unlike one that cannot start."""
    return isinstance(error, RayActorError | NodeDiedError | WorkerLostError)


def may_be_retried(error: BaseException) -> bool:
    """Return whether a new process may succeed: not after out-of-memory or settings errors."""
    return isinstance(error, WorkerError) and Outcome.of_error(str(error)) is not Outcome.OOM


@dataclass
class Bundles:
    """Bundles of a trial, one per process, in which its processes start.

    ``shares`` are the resources of each process; the placement group ``is_own`` if it was reserved
    here instead of by Tune.
    """

    placement_group: PlacementGroup
    shares: Sequence[TrialResources]
    is_own: bool = False
    timeouts: ProcessTimeouts = ProcessTimeouts()
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def reserve(
        cls, trial_resources: Any, parallelism: Parallelism, resources: TrialResources
    ) -> "Bundles":
        """Return the bundles reserved by Tune, or reserve them if ``trial_resources`` is None.

        Raises:
            UnavailableResourcesError: There is no Ray cluster, or it is full.
        """
        if not ray.is_initialized():
            raise UnavailableResourcesError(
                "a trial of several processes needs a Ray cluster for them: call ray.init()"
            )
        shares = list(parallelism.shares(resources))
        if trial_resources is not None:
            bundles = filter(None, trial_resources.bundles)
            shares = [TrialResources.of_bundle(bundle) for bundle in bundles]
        group = ray.util.get_current_placement_group()
        if group is not None:
            return cls(group, shares)
        group = ray.util.placement_group(
            [share.bundle for share in shares], strategy=parallelism.placement.upper()
        )
        if not group.wait(_RESERVATION_S):
            ray.util.remove_placement_group(group)
            raise UnavailableResourcesError(
                f"the Ray cluster had no room for {len(shares)} workers with {shares[0]} each "
                f"within {_RESERVATION_S} s: ask for less, or add machines"
            )
        return cls(group, shares, is_own=True)

    def release(self) -> None:
        """Remove the placement group unless Tune owns it."""
        if self.is_own:
            ray.util.remove_placement_group(self.placement_group)
            self.is_own = False

    def start(
        self,
        worker_class: type[WorkerProcess],
        bundle: int,
        *,
        name: str = "",
        rank: int | None = None,
        shares_bundle: bool = False,
    ) -> ProcessHandle:
        """Start a process in a bundle, by default as the worker with its number, without waiting.

        With ``shares_bundle``, the resources of the bundle belong to another process.
        """
        name = name or f"worker {bundle}"
        share = self.shares[bundle]
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self.placement_group, placement_group_bundle_index=bundle
        )
        actor = _REMOTE_ACTOR.options(
            scheduling_strategy=strategy,
            num_cpus=0 if shares_bundle else share.cpus,
            num_gpus=0 if shares_bundle else share.gpus,
            max_restarts=0,
        ).remote(worker_class, bundle if rank is None else rank, name)
        return ProcessHandle(name, actor, self.timeouts, self.clock)

    def wait_for(
        self,
        calls: Sequence[Any],
        processes: Sequence[ProcessHandle],
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Return the results of calls; raise the first error, or an error on silence or timeout."""
        started = self.clock()
        pending = list(calls)
        while pending:
            finished, pending = ray.wait(pending, timeout=self.timeouts.ping_interval_s)
            ray.get(finished)
            if finished:
                continue
            if timeout_s is not None and self.clock() - started > timeout_s:
                raise WorkerLostError(
                    f"the workers did not connect within {timeout_s:g} s: check that their nodes "
                    "can reach each other on any port"
                )
            for process in processes:
                if (error := process.heartbeat_error()) is not None:
                    raise error
        return list(ray.get(calls))

    def end(
        self, processes: Sequence[ProcessHandle], finishing: Sequence[ProcessHandle] = ()
    ) -> None:
        """Kill processes; those that finish first call the trial's callbacks."""
        calls = [process.call("finish") for process in finishing]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=self.timeouts.finish_s)
        for process in processes:
            process.kill()

    def failure(self, error: BaseException, processes: Sequence[ProcessHandle]) -> BaseException:
        """Return the trial's error for a failed call; after a death, wait until Ray reports it."""
        cause = cause_of(error)
        if is_actor_death(error):
            return self._find_dead(processes) or WorkerLostError(str(cause))
        return cause

    def _find_dead(self, processes: Sequence[ProcessHandle]) -> BaseException | None:
        """Kill the processes that respond to a ping, and return an error that names the dead one.

        Peers and broken connections reveal a death before Ray knows whether the node died too, on
        which a restored trial would be placed again. None if Ray reports no death in time.
        """
        suspects = list(processes)
        deadline = self.clock() + self.timeouts.node_death_s
        while suspects and self.clock() < deadline:
            pings = {process.actor.ping.remote(): process for process in suspects}
            timeout = self.timeouts.ping_interval_s
            for ping in ray.wait(list(pings), num_returns=len(pings), timeout=timeout)[0]:
                process = pings[ping]
                try:
                    ray.get(ping)
                except ActorUnavailableError:
                    time.sleep(self.timeouts.retry_s)
                except (RayActorError, NodeDiedError) as error:
                    return WorkerLostError(f"{process.name} died: {error}")
                except RayError as error:
                    return cause_of(error)
                else:
                    process.kill()
                    suspects.remove(process)
        return None
