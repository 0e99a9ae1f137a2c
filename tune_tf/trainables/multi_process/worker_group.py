"""Group of synchronous worker actors in a placement group."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import TuneTfError, UnavailableResourcesError, WorkerLostError
from tune_tf.trainables.multi_process.heartbeat import HeartbeatMonitor, Watch, find_dead_process
from tune_tf.trainables.multi_process.worker import WorkerAssignment
from tune_tf.trainables.multi_process.worker_actor import WorkerActor, started
from tune_tf.training.rendezvous import PortTakenError, compatible_addresses

_log = logging.getLogger(__name__)

_MEETINGS = 3


class WorkerGroup:
    """Group of workers, one per bundle, that run the same calls together.

    The first failure ends all workers, because the others would wait forever.

    Attributes:
        devices: Description of the workers' devices, for reports.
    """

    def __init__(
        self,
        assignment: WorkerAssignment,
        *,
        num_workers: int,
        placement_group: PlacementGroup,
        watch: Watch = Watch(),  # noqa: B008  frozen
        actor: Any = WorkerActor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment = assignment
        self._num_workers = num_workers
        self._placement_group = placement_group
        self._watch = watch
        self._actor = ray.remote(concurrency_groups={"ping": 1})(actor)
        self._clock = clock
        self._workers: list[Any] = []
        self.devices = ""
        self._meet()

    def ask(
        self,
        method: str,
        *arguments: Any,
        watched: bool = True,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call a method of all workers concurrently; return the results by rank.

        Args:
            method: Method of :class:`tune_tf.trainables.multi_process.worker.Worker`.
            arguments: Arguments, equal for all workers.
            watched: Whether silence counts as a failure. Set it to False while workers load modules
                or data, when they may not respond for long.
            timeout_s: Seconds for the whole call; None to wait while the workers are alive.

        Raises:
            TuneTfError: Error of the first worker that failed; all workers have ended.
        """
        if not self._workers:
            raise WorkerLostError("the workers of this trial have ended")
        answers = [worker.do.remote(method, *arguments) for worker in self._workers]
        try:
            self._await(answers, watched=watched, timeout_s=timeout_s)
            return list(ray.get(answers))
        except BaseException as error:
            cause = self._judged(error)
            self.end()
            if cause is error:
                raise
            raise cause from None

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        workers, self._workers = self._workers, []
        if finish and workers:
            answers = [worker.do.remote("finish") for worker in workers]
            ray.wait(answers, num_returns=len(answers), timeout=self._watch.finish_s)
        for worker in workers:
            ray.kill(worker)

    def _meet(self) -> None:
        """Start and connect the workers; retry with new ports if one was taken."""
        for attempt in range(1, _MEETINGS + 1):
            self._workers = [
                started(self._actor, rank, self._assignment.resources, self._placement_group)
                for rank in range(self._num_workers)
            ]
            workers = self.ask("meet", self._assignment, watched=False)
            try:
                addresses = compatible_addresses(workers)
            except UnavailableResourcesError:
                self.end()
                raise
            self.devices = "; ".join(f"{worker.devices} on {worker.node}" for worker in workers)
            try:
                self.ask("join", addresses, timeout_s=self._watch.join_s)
            except PortTakenError as error:
                if attempt == _MEETINGS:
                    raise
                _log.warning("%s; the workers restart on other ports", error)
            else:
                return

    def _await(self, answers: Sequence[Any], *, watched: bool, timeout_s: float | None) -> None:
        """Wait for all replies; raise the first error, or an error on silence or timeout."""
        asked = self._clock()
        waiting = list(answers)
        monitor = HeartbeatMonitor(self._watch.silent_s)
        while waiting:
            done, waiting = ray.wait(waiting, timeout=self._watch.ping_interval_s)
            ray.get(done)
            if done:
                continue
            now = self._clock()
            if timeout_s is not None and now - asked > timeout_s:
                raise WorkerLostError(
                    f"the workers did not connect within {timeout_s:g} s: check that their nodes "
                    "can reach each other on any port"
                )
            if watched:
                for name, worker in self._by_name.items():
                    if silence := monitor.silence(name, worker, now):
                        raise silence

    @property
    def _by_name(self) -> dict[str, Any]:
        return {f"worker {rank}": worker for rank, worker in enumerate(self._workers)}

    def _judged(self, error: BaseException) -> BaseException:
        """Return the trial's error for a failed call; after a death, wait until Ray reports it."""
        if isinstance(error, RayTaskError):
            cause = error.cause
            if not isinstance(cause, WorkerLostError):
                return cause if isinstance(cause, TuneTfError) else error
            error = cause
        if isinstance(error, RayActorError | WorkerLostError):
            lost = find_dead_process(self._by_name, self._watch, self._clock)
            return lost or WorkerLostError(str(error))
        return error
