"""Trainable with a parameter server and replaceable asynchronous workers."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from tune_tf.errors import TuneTfError, WorkerLostError
from tune_tf.trainables.multi_process.parameter_server import (
    GradientWorker,
    ParameterServer,
    UpdateReport,
    WorkReport,
)
from tune_tf.trainables.multi_process.process_trainable import (
    ProcessGroup,
    SingleModelTrainable,
)
from tune_tf.trainables.multi_process.processes import Bundles, RemoteProcess, cause_of
from tune_tf.trainables.multi_process.worker import Files, WorkerAssignment
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.peak_memory import sum_peak_memory
from tune_tf.training.rendezvous import WorkerInfo, compatible_addresses

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GroupWorker:
    """Running or starting worker.

    Args:
        number: Unique number in the group; a replacement gets another one.
        bundle: Index of its bundle.
        process: Its process.
        answers: References to pending replies, in order.
        info: Description of the process, once it has started.
        load: Latest system metrics, by result key.
    """

    number: int
    bundle: int
    process: RemoteProcess
    answers: list[Any]
    info: WorkerInfo | None = None
    load: dict[str, float] = field(default_factory=dict)


class AsynchronousGroup(ProcessGroup):
    """Parameter server and workers of a trial.

    The first bundles are the workers', one each; a further one is the server's. A worker that dies
    or stops responding is replaced while the others continue. The trial fails if the server fails,
    or if a worker raises an error that another worker would raise too.
    """

    def __init__(self, assignment: WorkerAssignment, bundles: Bundles) -> None:
        super().__init__(assignment, bundles)
        self._parallelism = assignment.settings.parallelism
        self._numbers = itertools.count()
        self._checked = bundles.clock()
        self._trial: TrialStart | None = None
        self._num_replaced = 0
        self._num_lost = 0
        self._workers: list[GroupWorker] = []
        num_workers = len(bundles.shares) - bool(self._parallelism.server_cpus)
        is_guest = not self._parallelism.server_cpus
        # The server holds the trial's state, so it has rank 0.
        self._server: RemoteProcess | None = bundles.start(
            ParameterServer,
            0 if is_guest else num_workers,
            name="the parameter server",
            rank=0,
            shares_bundle=is_guest,
        )
        self._workers = [self._start_worker(bundle) for bundle in range(num_workers)]
        share = replace(assignment.resources, cpus=max(1, self._parallelism.server_cpus), gpus=0)
        server = self._ask(("meet", replace(assignment, resources=share)), watched=False)
        self._server_info: WorkerInfo = replace(server, rank=num_workers)
        self._ask(("prepare", self._parallelism.max_staleness), watched=False)
        self._await_workers()

    @property
    def devices(self) -> str:  # type: ignore[override]  # workers are replaced
        """Description of the workers' devices, for reports."""
        info = [worker.info for worker in self._workers if worker.info is not None]
        return "; ".join(f"{each.devices} on {each.node}" for each in info)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._trial = trial
        self._num_replaced = 0
        for worker in self._workers:
            worker.process.watch(False)
            worker.answers.append(worker.process.call("start", trial))
        self._ask(("start", trial), watched=False)
        self._await_workers()

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report and further result keys."""
        self._num_lost = 0
        number = self._ask(("begin_epoch",))
        last: WorkReport | None = None
        while last is None or last.epoch < number:
            for worker in self._workers:
                if not worker.answers:
                    worker.process.watch()
                    worker.answers.append(worker.process.call("work"))
            last = self._take_replies() or last
        report: UpdateReport = self._ask(("end_epoch",))
        recycle = report.epoch.recycle or last.recycle
        loads = [report.epoch.system_metrics, *(worker.load for worker in self._workers)]
        load = sum_peak_memory(last.system_metrics, loads)
        epoch = replace(report.epoch, recycle=recycle, system_metrics=load)
        statistics = report.statistics
        return epoch, {
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
        if server is None:
            return
        idle = [server, *(each.process for each in workers if not each.answers)]
        finishing = [process.call("finish") for process in idle] if finish else []
        self._bundles.end([*(each.process for each in workers), server], finishing)

    def _start_worker(self, bundle: int) -> GroupWorker:
        process = self._bundles.start(GradientWorker, bundle)
        number = next(self._numbers)
        answers = [
            process.call("meet", self._assignment),
            process.call("prepare", self._server and self._server.actor, number),
        ]
        if self._trial is not None:
            answers.append(process.call("start", self._trial))
        return GroupWorker(number, bundle, process, answers)

    def _await_workers(self) -> None:
        while any(worker.answers for worker in self._workers):
            self._take_replies()

    def _take_replies(self) -> WorkReport | None:
        """Wait briefly for replies and check the processes; return the report of the last epoch."""
        waiting = {worker.answers[0]: worker for worker in self._workers if worker.answers}
        done, _ = ray.wait(list(waiting), timeout=self._bundles.watch.ping_interval_s)
        last: WorkReport | None = None
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
                if last is None or reply.epoch > last.epoch:
                    last = reply
        self._check_heartbeats()
        return last

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
        now = self._bundles.clock()
        if self._server is None or now - self._checked < self._bundles.watch.ping_interval_s:
            return
        self._checked = now
        for worker in self._workers:
            if (loss := worker.process.loss()) is not None:
                self._lose(worker, loss)
        if (loss := self._server.loss()) is not None:
            self._fail(loss, [self._server])

    def _lose(self, worker: GroupWorker, error: Exception) -> None:
        """Replace a lost worker; fail the trial on any other error."""
        server = [] if self._server is None else [self._server]
        if not isinstance(cause_of(error), WorkerLostError):
            self._fail(error, server)
        worker.process.kill()
        self._num_lost += 1
        self._num_replaced += 1
        name, most = worker.process.name, self._parallelism.max_replacements
        if self._num_replaced > most:
            error = WorkerLostError(
                f"{name} was lost after {most} others had been replaced (max_replacements): {error}"
            )
            self._fail(error, server)
        _log.warning(
            "%s was lost; its batch is repeated, and a fresh process replaces it (%d of %d): %s",
            name,
            self._num_replaced,
            most,
            error,
        )
        self._ask(("forget", worker.number))
        self._workers[self._workers.index(worker)] = self._start_worker(worker.bundle)

    def _ask(self, request: Sequence[Any], *, watched: bool = True) -> Any:
        """Call a method of the server; on an error, end all processes and raise the trial's."""
        server = self._server
        if server is None:
            raise WorkerLostError("the processes of this trial have ended")
        server.watch(watched)
        answer = server.call(*request)
        try:
            while not ray.wait([answer], timeout=self._bundles.watch.ping_interval_s)[0]:
                if (loss := server.loss()) is not None:
                    raise loss
            reply = ray.get(answer)
        except Exception as error:  # noqa: BLE001  raised again there
            self._fail(error, [server])
        server.watch()
        return reply


class AsynchronousTrainable(SingleModelTrainable):
    """Trainable for one model whose workers send gradients to a parameter server asynchronously."""

    def start_processes(self, assignment: WorkerAssignment, bundles: Bundles) -> None:
        """Start the server and one worker in each of the other bundles."""
        self._processes = AsynchronousGroup(assignment, bundles)
