"""The worker actors of one trial: started in its placement group, watched, and ended together."""

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
    """Starts workers in the bundles of a placement group and lets them do things together.

    The first worker that fails ends all: the others would wait for it for ever.

    Args:
        assignment: What each worker does.
        num_workers: One a bundle, in their order.
        placement_group: Where they live.
        watch: When a worker counts as lost.
        actor: The actor class.
        clock: Seconds that only grow.

    Attributes:
        devices: What the workers train on, for reports.
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
        """Let all workers do the same at once; return what each returned, by rank.

        Args:
            method: A method of :class:`tune_tf.trainables.multi_process.worker.Worker`.
            arguments: The same for all.
            watched: Whether a silent process counts as lost; not while it loads modules or data,
                which may keep it from answering for long.
            timeout_s: Seconds for all of them together; None for as long as they are alive.

        Raises:
            TuneTfError: What the first worker that failed says; all have ended then.
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
        """End all processes.

        Args:
            finish: Whether to tell the trial's callbacks first.
        """
        workers, self._workers = self._workers, []
        if finish and workers:
            answers = [worker.do.remote("finish") for worker in workers]
            ray.wait(answers, num_returns=len(answers), timeout=self._watch.finish_s)
        for worker in workers:
            ray.kill(worker)

    def _meet(self) -> None:
        """Start the workers and connect them, again with new ports where one was taken."""
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
                _log.warning("%s; the workers start again on other ports", error)
            else:
                return

    def _await(self, answers: Sequence[Any], *, watched: bool, timeout_s: float | None) -> None:
        """Wait until all have answered.

        Raises:
            RayError: The first that fails, or whose process died.
            WorkerLostError: One is silent for too long, or not all answered in time.
        """
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
                    "reach each other on any port"
                )
            if watched:
                for name, worker in self._by_name.items():
                    if silence := monitor.silence(name, worker, now):
                        raise silence

    @property
    def _by_name(self) -> dict[str, Any]:
        return {f"worker {rank}": worker for rank, worker in enumerate(self._workers)}

    def _judged(self, error: BaseException) -> BaseException:
        """Return an error as the trial should raise it; where one died, once Ray knows of it."""
        if isinstance(error, RayTaskError):
            cause = error.cause
            if not isinstance(cause, WorkerLostError):
                return cause if isinstance(cause, TuneTfError) else error
            error = cause
        if isinstance(error, RayActorError | WorkerLostError):
            lost = find_dead_process(self._by_name, self._watch, self._clock)
            return lost or WorkerLostError(str(error))
        return error
