"""Trainable with a parameter server and replaceable asynchronous workers."""

import itertools
import logging
import operator
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from tune_tf.errors import WorkerLostError
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.parameter_server import GradientWorker, ParameterServer
from tune_tf.trainables.multi_process.process_trainable import ProcessGroup, ProcessTrainable
from tune_tf.trainables.multi_process.processes import Bundles, ProcessHandle, is_actor_death
from tune_tf.trainables.multi_process.worker import WorkerSetup
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.rendezvous import WorkerInfo
from tune_tf.training.system_metrics import sum_peak_memory

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class GroupWorker:
    """Running or starting worker, whose replacement gets another number.

    ``calls`` are references to its pending calls, in order; ``info`` is known once it has started.
    """

    number: int
    bundle: int
    process: ProcessHandle
    calls: list[Any]
    info: WorkerInfo | None = None
    system_metrics: dict[str, float] = field(default_factory=dict)


class AsynchronousGroup(ProcessGroup):
    """Parameter server and workers of a trial.

    The first bundles are the workers', one each; a further one is the server's. A worker that dies
    or stops responding is replaced while the others continue. The trial fails if the server fails,
    or if a worker raises an error that another worker would raise too.
    """

    def __init__(self, setup: WorkerSetup, bundles: Bundles) -> None:
        super().__init__(setup, bundles)
        self._parallelism = setup.settings.parallelism
        self._numbers = itertools.count()
        self._trial: TrialStart | None = None
        self._num_replaced = 0
        self._num_lost = 0
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
        info = self._call_server("meet", replace(setup, resources=share), watched=False)
        self._server_info: WorkerInfo = replace(info, rank=num_workers)
        self._call_server("prepare", self._parallelism.max_staleness, watched=False)
        self._await_workers()

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self._trial = trial
        self._num_replaced = 0
        for worker in self._workers:
            worker.process.watch(False)
            worker.calls.append(worker.process.call("start", trial))
        self._call_server("start", trial, watched=False)
        self._await_workers()

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch."""
        self._num_lost = 0
        number = self._call_server("begin_epoch")
        completed, last = 0, None
        while last is None or completed < number:
            for worker in self._workers:
                if not worker.calls:
                    worker.process.watch()
                    worker.calls.append(worker.process.call("work"))
            reports = [(completed, last), *self._handle_replies()]
            completed, last = max(reports, key=operator.itemgetter(0))
        report: EpochReport = self._call_server("end_epoch")
        loads = [report.system_metrics, *(worker.system_metrics for worker in self._workers)]
        extra = {"num_workers": len(self._workers), "async/workers_lost": self._num_lost}
        return replace(
            report,
            recycle=report.recycle or last.recycle,
            system_metrics=sum_peak_memory(last.system_metrics, loads),
            extra=report.extra | extra,
        )

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        workers, self._workers = self._workers, []
        servers, self._processes = self._processes, []
        idle = [*servers, *(worker.process for worker in workers if not worker.calls)]
        processes = [*(worker.process for worker in workers), *servers]
        self._bundles.end(processes, idle if finish else [])

    def _start_worker(self, bundle: int) -> GroupWorker:
        process = self._bundles.start(GradientWorker, bundle)
        number = next(self._numbers)
        calls = [
            process.call("meet", self._setup),
            process.call("prepare", self._processes[0].actor, number),
        ]
        if self._trial is not None:
            calls.append(process.call("start", self._trial))
        return GroupWorker(number, bundle, process, calls)

    def _await_workers(self) -> None:
        while any(worker.calls for worker in self._workers):
            self._handle_replies()

    def _handle_replies(self) -> list[tuple[int, EpochReport]]:
        """Wait briefly for replies and check the processes; return the reports of epochs."""
        pending = {worker.calls[0]: worker for worker in self._workers if worker.calls}
        finished, _ = ray.wait(list(pending), timeout=self._bundles.timeouts.ping_interval_s)
        reports: list[tuple[int, EpochReport]] = []
        for call in finished:
            worker = pending[call]
            try:
                reply = ray.get(call)
            except Exception as error:  # noqa: BLE001  handled there
                self._replace(worker, error)
                continue
            del worker.calls[0]
            if isinstance(reply, WorkerInfo):
                worker.info = reply
                server = replace(self._server_info, num_gpus=reply.num_gpus)
                self._check_compatible([*self._name_devices(), server])
            elif reply is not None:
                worker.system_metrics = reply[1].system_metrics
                reports.append(reply)
        self._check_heartbeats()
        return reports

    def _name_devices(self) -> list[WorkerInfo]:
        """Set the names of the devices; return the descriptions of the connected workers."""
        connected = [worker.info for worker in self._workers if worker.info is not None]
        self.devices = "; ".join(f"{info.devices} on {info.node}" for info in connected)
        return connected

    def _check_heartbeats(self) -> None:
        """Replace workers that have been silent for too long."""
        for worker in self._workers:
            if (error := worker.process.heartbeat_error()) is not None:
                self._replace(worker, error)
        for server in self._processes:
            if (error := server.heartbeat_error()) is not None:
                self._fail(error)

    def _replace(self, worker: GroupWorker, error: BaseException) -> None:
        """Replace a lost worker; fail the trial on any other error."""
        if not is_actor_death(error):
            self._fail(error)
        worker.process.kill()
        self._num_lost += 1
        self._num_replaced += 1
        name, limit = worker.process.name, self._parallelism.max_replacements
        if self._num_replaced > limit:
            text = f"{name} was lost after {limit} others had been replaced (max_replacements)"
            self._fail(WorkerLostError(f"{text}: {error}"))
        _log.warning(
            "%s was lost; its batch is repeated, and a fresh process replaces it (%d of %d): %s",
            name,
            self._num_replaced,
            limit,
            error,
        )
        self._call_server("forget", worker.number)
        self._workers[self._workers.index(worker)] = self._start_worker(worker.bundle)
        self._name_devices()

    def _call_server(self, method: str, *arguments: Any, watched: bool = True) -> Any:
        (reply,) = self.call(method, *arguments, watched=watched)
        self._processes[0].watch()
        return reply


class AsynchronousTrainable(ProcessTrainable):
    """Trainable for one model whose workers send gradients to a parameter server asynchronously."""

    group_class = AsynchronousGroup
