"""Trainable with a parameter server and replaceable asynchronous workers."""

import itertools
import logging
import operator
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from tune_tf.errors import TuneTfError, WorkerLostError
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.parameter_server import (
    GradientWorker,
    ParameterServer,
)
from tune_tf.trainables.multi_process.process_trainable import ProcessGroup, ProcessTrainable
from tune_tf.trainables.multi_process.processes import Bundles, ProcessHandle, is_actor_death
from tune_tf.trainables.multi_process.worker import WorkerSetup
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.rendezvous import WorkerInfo, compatible_addresses
from tune_tf.training.system_metrics import sum_peak_memory

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
    process: ProcessHandle
    answers: list[Any]
    info: WorkerInfo | None = None
    load: dict[str, float] = field(default_factory=dict)


class AsynchronousGroup(ProcessGroup):
    """Parameter server and workers of a trial.

    The first bundles are the workers', one each; a further one is the server's. A worker that dies
    or stops responding is replaced while the others continue. The trial fails if the server fails,
    or if a worker raises an error that another worker would raise too.
    """

    def __init__(self, assignment: WorkerSetup, bundles: Bundles) -> None:
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
        server = bundles.start(
            ParameterServer,
            0 if is_guest else num_workers,
            name="the parameter server",
            rank=0,
            shares_bundle=is_guest,
        )
        self._processes = [server]
        self._workers = [self._start_worker(bundle) for bundle in range(num_workers)]
        share = TrialResources(max(1, self._parallelism.server_cpus))
        info = self._ask_server("meet", replace(assignment, resources=share), watched=False)
        self._server_info: WorkerInfo = replace(info, rank=num_workers)
        self._ask_server("prepare", self._parallelism.max_staleness, watched=False)
        self._await_workers()

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._trial = trial
        self._num_replaced = 0
        for worker in self._workers:
            worker.process.watch(False)
            worker.answers.append(worker.process.call("start", trial))
        self._ask_server("start", trial, watched=False)
        self._await_workers()

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch."""
        self._num_lost = 0
        number = self._ask_server("begin_epoch")
        done, last = 0, None
        while last is None or done < number:
            for worker in self._workers:
                if not worker.answers:
                    worker.process.watch()
                    worker.answers.append(worker.process.call("work"))
            done, last = max([(done, last), *self._take_replies()], key=operator.itemgetter(0))
        report: EpochReport = self._ask_server("end_epoch")
        loads = [report.system_metrics, *(worker.load for worker in self._workers)]
        more = {"num_workers": len(self._workers), "async/workers_lost": self._num_lost}
        return replace(
            report,
            recycle=report.recycle or last.recycle,
            system_metrics=sum_peak_memory(last.system_metrics, loads),
            more=report.more | more,
        )

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        workers, self._workers = self._workers, []
        servers, self._processes = self._processes, []
        idle = [*servers, *(each.process for each in workers if not each.answers)]
        processes = [*(each.process for each in workers), *servers]
        self._bundles.end(processes, idle if finish else [])

    def _start_worker(self, bundle: int) -> GroupWorker:
        process = self._bundles.start(GradientWorker, bundle)
        number = next(self._numbers)
        answers = [
            process.call("meet", self._assignment),
            process.call("prepare", self._processes[0].actor, number),
        ]
        if self._trial is not None:
            answers.append(process.call("start", self._trial))
        return GroupWorker(number, bundle, process, answers)

    def _await_workers(self) -> None:
        while any(worker.answers for worker in self._workers):
            self._take_replies()

    def _take_replies(self) -> list[tuple[int, EpochReport]]:
        """Wait briefly for replies and check the processes; return the reports of epochs."""
        waiting = {worker.answers[0]: worker for worker in self._workers if worker.answers}
        done, _ = ray.wait(list(waiting), timeout=self._bundles.watch.ping_interval_s)
        reports: list[tuple[int, EpochReport]] = []
        for answer in done:
            worker = waiting[answer]
            try:
                reply = ray.get(answer)
            except Exception as error:  # noqa: BLE001  handled there
                self._lose(worker, error)
                continue
            del worker.answers[0]
            if isinstance(reply, WorkerInfo):
                self._register(worker, reply)
            elif reply is not None:
                worker.load = reply[1].system_metrics
                reports.append(reply)
        self._check_heartbeats()
        return reports

    def _register(self, worker: GroupWorker, info: WorkerInfo) -> None:
        worker.info = info
        known = self._name_devices()
        known.append(replace(self._server_info, num_gpus=info.num_gpus))
        try:
            compatible_addresses(known)
        except TuneTfError:
            self.end()
            raise

    def _name_devices(self) -> list[WorkerInfo]:
        """Set the names of the devices; return the descriptions of the connected workers."""
        known = [each.info for each in self._workers if each.info is not None]
        self.devices = "; ".join(f"{each.devices} on {each.node}" for each in known)
        return known

    def _check_heartbeats(self) -> None:
        """Replace workers that have been silent for too long; at most once per ping interval."""
        now = self._bundles.clock()
        if now - self._checked < self._bundles.watch.ping_interval_s:
            return
        self._checked = now
        for worker in self._workers:
            if (loss := worker.process.loss()) is not None:
                self._lose(worker, loss)
        for server in self._processes:
            if (loss := server.loss()) is not None:
                self._fail(loss)

    def _lose(self, worker: GroupWorker, error: BaseException) -> None:
        """Replace a lost worker; fail the trial on any other error."""
        if not is_actor_death(error):
            self._fail(error)
        worker.process.kill()
        self._num_lost += 1
        self._num_replaced += 1
        name, most = worker.process.name, self._parallelism.max_replacements
        if self._num_replaced > most:
            text = f"{name} was lost after {most} others had been replaced (max_replacements)"
            self._fail(WorkerLostError(f"{text}: {error}"))
        _log.warning(
            "%s was lost; its batch is repeated, and a fresh process replaces it (%d of %d): %s",
            name,
            self._num_replaced,
            most,
            error,
        )
        self._ask_server("forget", worker.number)
        self._workers[self._workers.index(worker)] = self._start_worker(worker.bundle)
        self._name_devices()

    def _ask_server(self, method: str, *arguments: Any, watched: bool = True) -> Any:
        (reply,) = self.ask(method, *arguments, watched=watched)
        self._processes[0].watch()
        return reply


class AsynchronousTrainable(ProcessTrainable):
    """Trainable for one model whose workers send gradients to a parameter server asynchronously."""

    group_class = AsynchronousGroup
