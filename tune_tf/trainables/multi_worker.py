"""Trainable for one model in several synchronous processes, on one or more nodes."""

import socket
from dataclasses import replace

from tune_tf.trainables.processes import (
    Bundles,
    ProcessGroup,
    ProcessTrainable,
    Worker,
    WorkerSetup,
)
from tune_tf.trainables.trial_process import EpochReport
from tune_tf.training.system_metrics import sum_peak_memory

_JOIN_S = 300


class SynchronousWorker(Worker):
    """Worker that trains on its part of every batch together with its peers."""

    def address(self) -> str:
        """Return ``host:port`` for TensorFlow, a port that is bound until TensorFlow takes over."""
        self._port = socket.socket()
        self._port.bind(("", 0))
        return f"{self._host}:{self._port.getsockname()[1]}"

    def join(self, addresses: tuple[str, ...]) -> None:
        """Connect to the other workers at their addresses by rank."""
        from tune_tf.training.loop import GraphLoop
        from tune_tf.training.replicas.replicas import MultiWorkerReplicas

        self._port.close()
        self._discards_files = self._rank > 0
        replicas = MultiWorkerReplicas(self.devices, addresses, self._rank)
        frozen = self.frozen_outputs(replicas)
        loop = GraphLoop(replicas, self._parallelism, frozen=frozen)
        self.serve(loop, replicas)


class WorkerGroup(ProcessGroup):
    """Group of workers, one per bundle, that run the same calls together."""

    def __init__(
        self,
        setup: WorkerSetup,
        bundles: Bundles,
        worker_class: type[Worker] = SynchronousWorker,
    ) -> None:
        self._actors = bundles.start_workers(worker_class)
        self.devices = "; ".join(self.call("set_up", setup))
        self.call("join", tuple(self.call("address")), timeout_s=_JOIN_S)

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


class MultiWorkerTrainable(ProcessTrainable):
    """Trainable for one model in several processes that train synchronously on parts of a batch."""

    group_class = WorkerGroup
