"""Trainable for one model in several synchronous processes, on one or more nodes."""

import logging
from dataclasses import replace

from tune_tf.trainables.multi_process.process_trainable import ProcessGroup, ProcessTrainable
from tune_tf.trainables.multi_process.processes import Bundles
from tune_tf.trainables.multi_process.worker import Worker, WorkerProcess, WorkerSetup
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.rendezvous import PortTakenError
from tune_tf.training.system_metrics import sum_peak_memory

_log = logging.getLogger(__name__)

_ATTEMPTS = 3


class WorkerGroup(ProcessGroup):
    """Group of workers, one per bundle, that run the same calls together.

    The first failure ends all workers, because the others would wait forever.
    """

    def __init__(
        self, setup: WorkerSetup, bundles: Bundles, worker_class: type[WorkerProcess] = Worker
    ) -> None:
        super().__init__(setup, bundles)
        self._connect(worker_class)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self.call("start", trial, watched=False)

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch."""
        reports: list[EpochReport] = self.call("epoch")
        loads = [each.system_metrics for each in reports]
        return replace(
            reports[0],
            recycle=any(each.recycle for each in reports),
            system_metrics=sum_peak_memory(loads[0], loads),
            extra={"num_workers": len(reports)},
        )

    def _connect(self, worker_class: type[WorkerProcess]) -> None:
        """Start and connect the workers; retry with new ports if one was taken."""
        for attempt in range(1, _ATTEMPTS + 1):
            self._processes = [
                self._bundles.start(worker_class, rank) for rank in range(len(self._bundles.shares))
            ]
            workers = self.call("meet", self._setup, watched=False)
            addresses = self._check_compatible(workers)
            self.devices = "; ".join(f"{worker.devices} on {worker.node}" for worker in workers)
            try:
                self.call("join", addresses, timeout_s=self._bundles.timeouts.join_s)
            except PortTakenError as error:
                if attempt == _ATTEMPTS:
                    raise
                _log.warning("%s; the workers restart on other ports", error)
            else:
                return


class MultiWorkerTrainable(ProcessTrainable):
    """Trainable for one model in several processes that train synchronously on parts of a batch."""

    group_class = WorkerGroup
