"""The worker actors of one trial: started in its placement group, watched, and ended together."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import TuneTfError, UnavailableResourcesError, WorkerLostError
from tune_tf.trainables.pulse import Pulse
from tune_tf.trainables.worker import Assignment
from tune_tf.trainables.worker_actor import WorkerActor, started
from tune_tf.training.meeting import PortTakenError, addresses_of

_log = logging.getLogger(__name__)

_MEETINGS = 3


@dataclass(frozen=True)
class Watch:
    """How long a group waits before it takes a worker for lost, all in seconds.

    Args:
        pulse_s: Between two questions whether the workers are alive.
        silent_s: Without an answer to them; the others end then.
        verdict_s: After that, for Ray to find out whether the node died: the trial fails then.
        retry_s: Between two questions to a worker that cannot be reached.
        join_s: For all workers to connect.
        finish_s: For a trial's end, before the processes are killed.
    """

    pulse_s: float = 3.0
    silent_s: float = 20.0
    verdict_s: float = 60.0
    retry_s: float = 0.5
    join_s: float = 300.0
    finish_s: float = 10.0


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
        assignment: Assignment,
        *,
        num_workers: int,
        placement_group: PlacementGroup,
        watch: Watch = Watch(),
        actor: Any = WorkerActor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment = assignment
        self._num_workers = num_workers
        self._placement_group = placement_group
        self._watch = watch
        self._actor = ray.remote(concurrency_groups={"pulse": 1})(actor)
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
            method: A method of :class:`tune_tf.trainables.worker.Worker`.
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
            told = self._judged(error)
            self.end()
            if told is error:
                raise
            raise told from None

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
        for meeting in range(1, _MEETINGS + 1):
            self._workers = [
                started(self._actor, rank, self._assignment.resources, self._placement_group)
                for rank in range(self._num_workers)
            ]
            facts = self.ask("meet", self._assignment, watched=False)
            try:
                addresses = addresses_of(facts)
            except UnavailableResourcesError:
                self.end()
                raise
            self.devices = "; ".join(f"{worker.devices} on {worker.node}" for worker in facts)
            try:
                self.ask("join", addresses, timeout_s=self._watch.join_s)
            except PortTakenError as error:
                if meeting == _MEETINGS:
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
        started = self._clock()
        waiting = list(answers)
        pulses: list[Pulse] = []
        while waiting:
            done, waiting = ray.wait(waiting, timeout=self._watch.pulse_s)
            ray.get(done)
            if done:
                continue
            now = self._clock()
            if timeout_s is not None and now - started > timeout_s:
                raise WorkerLostError(
                    f"the workers did not connect within {timeout_s:g} s: check that their nodes "
                    "reach each other on any port"
                )
            if watched:
                pulses = pulses or [Pulse(worker, now) for worker in self._workers]
                self._feel(pulses, now)

    def _feel(self, pulses: Sequence[Pulse], now: float) -> None:
        """Refuse a silence that is too long."""
        for rank, pulse in enumerate(pulses):
            if pulse.silence_s(now) > self._watch.silent_s:
                raise WorkerLostError(
                    f"worker {rank} has given no sign of life for {self._watch.silent_s:g} s: its "
                    "node is down, cut off or frozen"
                )

    def _judged(self, error: BaseException) -> BaseException:
        """Return an error as the trial should raise it; where one died, once Ray knows of it."""
        if isinstance(error, RayTaskError):
            cause = error.cause
            if not isinstance(cause, WorkerLostError):
                return cause if isinstance(cause, TuneTfError) else error
            error = cause
        if isinstance(error, RayActorError | WorkerLostError):
            return self._verdict() or WorkerLostError(str(error))
        return error

    def _verdict(self) -> WorkerLostError | None:
        """End the workers that are alive at once, and wait until Ray knows which one is not.

        Peers and broken connections tell of a death before Ray can say whether the node died too,
        and a trial that is restored before that would be given the dead node once more.
        """
        suspects = dict(enumerate(self._workers))
        deadline = self._clock() + self._watch.verdict_s
        while suspects and self._clock() < deadline:
            pulses = {worker.pulse.remote(): rank for rank, worker in suspects.items()}
            told, _ = ray.wait(list(pulses), num_returns=len(pulses), timeout=self._watch.pulse_s)
            for pulse in told:
                rank = pulses[pulse]
                try:
                    ray.get(pulse)
                except ActorUnavailableError:
                    time.sleep(self._watch.retry_s)
                except RayActorError as error:
                    return WorkerLostError(f"worker {rank} died: {error}")
                else:
                    ray.kill(suspects.pop(rank))
        return None
