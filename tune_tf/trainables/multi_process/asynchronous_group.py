"""Processes of an asynchronous trial: a parameter server and replaceable workers."""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import TuneTfError, WorkerLostError
from tune_tf.parallelism import Asynchronous
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.checkpoint_files import Files
from tune_tf.trainables.multi_process.gradient_worker import GradientWorkerActor, WorkReport
from tune_tf.trainables.multi_process.heartbeat import HeartbeatMonitor, Watch, find_dead_process
from tune_tf.trainables.multi_process.parameter_server import ParameterServerActor, UpdateReport
from tune_tf.trainables.multi_process.worker import EpochReport, TrialStart, WorkerAssignment
from tune_tf.trainables.multi_process.worker_actor import WorkerActor
from tune_tf.training.rendezvous import WorkerInfo, compatible_addresses
from tune_tf.training.system_metrics import sum_peak_memory

_log = logging.getLogger(__name__)

_SERVER = "the parameter server"


@dataclass(eq=False)
class GroupWorker:
    """Running or starting worker.

    Args:
        number: Unique number in the group; a replacement gets another one.
        bundle: Index of its bundle.
        actor: Ray actor.
        answers: References to pending replies, in order.
        info: Description of the process, once it has started.
        watched: Whether silence counts as a failure: not while modules or data load.
        load: Latest system metrics, by result key.
    """

    number: int
    bundle: int
    actor: Any
    answers: list[Any]
    info: WorkerInfo | None = None
    watched: bool = False
    load: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"worker {self.bundle}"


class AsynchronousGroup:
    """Parameter server and workers of a trial in a placement group.

    The first bundles are the workers', one each; a further one is the server's. A worker that dies
    or stops responding is replaced while the others continue. The trial fails if the server fails,
    or if a worker raises an error that another worker would raise too.
    """

    def __init__(
        self,
        assignment: WorkerAssignment,
        parallelism: Asynchronous,
        *,
        placement_group: PlacementGroup,
        watch: Watch = Watch(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment = assignment
        self._parallelism = parallelism
        self._placement_group = placement_group
        self._watch = watch
        self._clock = clock
        self._numbers = itertools.count()
        self._monitor = HeartbeatMonitor(watch.silent_s)
        self._felt = clock()
        self._trial: TrialStart | None = None
        self._num_replaced = 0
        self._num_lost = 0
        self._workers: list[GroupWorker] = []
        self._server = self._start_server()
        self._workers = [self._hired(bundle) for bundle in range(parallelism.num_workers)]
        server: WorkerInfo = self._ask(("meet", self._server_assignment), watched=False)
        self._server_info = replace(server, rank=parallelism.num_workers)
        self._ask(("prepare", parallelism.max_staleness), watched=False)
        self._await_workers()

    @property
    def devices(self) -> str:
        """Description of the workers' devices, for reports."""
        info = [worker.info for worker in self._workers if worker.info is not None]
        return "; ".join(f"{each.devices} on {each.node}" for each in info)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._trial = trial
        self._num_replaced = 0
        for worker in self._workers:
            worker.watched = False
            worker.answers.append(worker.actor.do.remote("start", trial))
        self._ask(("start", trial), watched=False)
        self._await_workers()

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report and further result keys."""
        self._num_lost = 0
        number = self._ask(("begin_epoch",))
        rested: WorkReport | None = None
        while rested is None or rested.epoch < number:
            for worker in self._workers:
                if not worker.answers:
                    worker.watched = True
                    worker.answers.append(worker.actor.do.remote("work"))
            rested = self._heard_of_workers() or rested
        report: UpdateReport = self._ask(("end_epoch",))
        recycle = report.epoch.recycle or rested.recycle
        loads = [report.epoch.system_metrics, *(worker.load for worker in self._workers)]
        load = sum_peak_memory(rested.system_metrics, loads)
        epoch = replace(report.epoch, recycle=recycle, system_metrics=load)
        return epoch, self._epoch_result(report)

    def _epoch_result(self, report: UpdateReport) -> dict[str, Any]:
        statistics = report.statistics
        return {
            "num_workers": len(self._workers),
            "async/staleness_mean": statistics.mean_staleness,
            "async/staleness_max": statistics.max_staleness,
            "async/gradients_per_s": report.gradients_per_s,
            "async/gradients_stale": statistics.num_stale,
            "async/gradients_late": statistics.num_late,
            "async/workers_lost": self._num_lost,
        }

    def state(self) -> Files:
        """Return the trial's checkpoint."""
        files: Files = self._ask(("state",))
        return files

    def restore(self, files: Any) -> None:
        """Restore a checkpoint from a Ray reference to its files."""
        self._ask(("restore", files))

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        server, self._server = self._server, None
        workers, self._workers = self._workers, []
        if finish and server is not None:
            answers = [server.do.remote("finish")]
            answers += [each.actor.do.remote("finish") for each in workers if not each.answers]
            ray.wait(answers, num_returns=len(answers), timeout=self._watch.finish_s)
        for worker in workers:
            ray.kill(worker.actor)
        if server is not None:
            ray.kill(server)

    @property
    def _server_assignment(self) -> WorkerAssignment:
        share = TrialResources(max(1, self._parallelism.server_cpus))
        return replace(self._assignment, resources=share)

    def _start_server(self) -> Any:
        cpus = self._parallelism.server_cpus
        return self._actor(
            ParameterServerActor, bundle=self._parallelism.num_workers if cpus else 0, cpus=cpus
        )

    def _hired(self, bundle: int) -> GroupWorker:
        share = self._assignment.resources
        number = next(self._numbers)
        actor = self._actor(GradientWorkerActor, bundle=bundle, cpus=share.cpus, gpus=share.gpus)
        requests = [("meet", self._assignment), *self._instructions(number)]
        answers = [actor.do.remote(*request) for request in requests]
        return GroupWorker(number, bundle, actor, answers)

    def _instructions(self, number: int) -> list[tuple[Any, ...]]:
        """Return the calls that set up a worker after it has claimed its devices."""
        requests: list[tuple[Any, ...]] = [("prepare", self._server, number)]
        return requests if self._trial is None else [*requests, ("start", self._trial)]

    def _actor(self, kind: type[WorkerActor], *, bundle: int, cpus: int, gpus: float = 0) -> Any:
        place = PlacementGroupSchedulingStrategy(
            placement_group=self._placement_group, placement_group_bundle_index=bundle
        )
        remote = ray.remote(concurrency_groups={"ping": 1})(kind)
        # The server holds the trial's state, so it has rank 0.
        rank = 0 if kind is ParameterServerActor else bundle
        return remote.options(
            scheduling_strategy=place, num_cpus=cpus, num_gpus=gpus, max_restarts=0
        ).remote(rank)

    def _await_workers(self) -> None:
        while any(worker.answers for worker in self._workers):
            self._heard_of_workers()

    def _heard_of_workers(self) -> WorkReport | None:
        """Wait briefly for a reply, and check the workers that send none."""
        waiting = {worker.answers[0]: worker for worker in self._workers if worker.answers}
        done, _ = ray.wait(list(waiting), timeout=self._watch.ping_interval_s)
        rested: WorkReport | None = None
        for answer in done:
            worker = waiting[answer]
            try:
                reply = ray.get(answer)
            except Exception as error:  # noqa: BLE001  handled there
                self._lose(worker, error)
                continue
            del worker.answers[0]
            if isinstance(reply, WorkerInfo):
                self._welcome(worker, reply)
            elif isinstance(reply, WorkReport):
                worker.load = reply.system_metrics
                if rested is None or reply.epoch > rested.epoch:
                    rested = reply
        self._check_heartbeats()
        return rested

    def _welcome(self, worker: GroupWorker, info: WorkerInfo) -> None:
        worker.info = info
        known = [each.info for each in self._workers if each.info is not None]
        known.append(replace(self._server_info, num_gpus=info.num_gpus))
        try:
            compatible_addresses(known)
        except TuneTfError:
            self.end()
            raise

    def _check_heartbeats(self) -> None:
        """Replace workers that have been silent for too long; at most once per ping interval."""
        now = self._clock()
        if now - self._felt < self._watch.ping_interval_s:
            return
        self._felt = now
        for worker in self._workers:
            if not worker.watched:
                continue
            try:
                silence = self._monitor.silence(
                    f"{worker.name} ({worker.number})", worker.actor, now
                )
            except RayActorError as error:
                silence = WorkerLostError(str(error))
            if silence is not None:
                self._lose(worker, silence)
        try:
            silence = self._monitor.silence(_SERVER, self._server, now)
        except RayActorError as error:
            silence = WorkerLostError(str(error))
        if silence is not None:
            self._fail(silence)

    def _lose(self, worker: GroupWorker, error: Exception) -> None:
        """Replace a lost worker; fail the trial on any other error."""
        lost = isinstance(error, RayActorError | WorkerLostError)
        if not lost:
            self._fail(error)
        ray.kill(worker.actor)
        self._num_lost += 1
        self._num_replaced += 1
        if self._num_replaced > self._parallelism.max_replacements:
            self._fail(
                WorkerLostError(
                    f"{worker.name} was lost after {self._parallelism.max_replacements} others had "
                    f"been replaced (max_replacements): {error}"
                )
            )
        _log.warning(
            "%s was lost; its batch is repeated, and a fresh process replaces it (%d of %d): %s",
            worker.name,
            self._num_replaced,
            self._parallelism.max_replacements,
            error,
        )
        self._ask(("forget", worker.number))
        self._workers[self._workers.index(worker)] = self._hired(worker.bundle)

    def _ask(self, request: Sequence[Any], *, watched: bool = True) -> Any:
        """Call a method of the server; on an error, end all processes and raise the trial's."""
        if self._server is None:
            raise WorkerLostError("the processes of this trial have ended")
        method, *arguments = request
        answer = self._server.do.remote(method, *arguments)
        try:
            while not ray.wait([answer], timeout=self._watch.ping_interval_s)[0]:
                silence = watched and self._monitor.silence(_SERVER, self._server, self._clock())
                if silence:
                    raise silence
            return ray.get(answer)
        except Exception as error:  # noqa: BLE001  handled there
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        """End all processes and raise the trial's error."""
        cause: BaseException = error
        if isinstance(error, RayTaskError):
            cause = error.cause if isinstance(error.cause, TuneTfError) else error
        if isinstance(cause, RayActorError | WorkerLostError) and self._server is not None:
            cause = find_dead_process(
                {_SERVER: self._server}, self._watch, self._clock
            ) or WorkerLostError(str(cause))
        self.end()
        if cause is error:
            raise error
        raise cause from None
