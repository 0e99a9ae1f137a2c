"""Processes of an asynchronous trial: its parameter server and its gradient workers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayActorError

from tune_tf.errors import WorkerLostError
from tune_tf.result_keys import STALENESS_MAX, STALENESS_MEAN
from tune_tf.trainables.multi_process.worker import Worker
from tune_tf.trainables.trial_process import EpochReport
from tune_tf.training.parameter_server.tasks import Array, BatchScheduler, Idle, Task, TaskResult

if TYPE_CHECKING:
    from tune_tf.training.parameter_server.gradient_loop import GradientLoop
    from tune_tf.training.parameter_server.update_loop import UpdateLoop


@dataclass
class _Epoch:
    """Epoch in progress, with times in seconds."""

    scheduler: BatchScheduler
    begun: float
    took_s: float = 0.0
    increments: list[Array] = field(default_factory=list)
    validation: dict[str, Any] | None = None


class ParameterServer(Worker):
    """Parameter server that applies gradients as they arrive and assigns tasks to workers.

    Its methods run one after another, so each gradient is applied as a whole.
    """

    _loop: "UpdateLoop"

    def prepare(self, max_staleness: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the loop for the trials; ``max_staleness`` is in updates."""
        from tune_tf.training.core.replicas import Replicas
        from tune_tf.training.parameter_server.update_loop import UpdateLoop

        self._port.close()
        self._max_staleness = max_staleness
        self._clock = clock
        loop = UpdateLoop(Replicas(self.devices), self._parallelism)
        self.serve(loop, None)
        self._num_epochs = 0
        self._version = 0
        self._epoch: _Epoch | None = None

    def begin_epoch(self) -> int:
        """Begin an epoch and return its number, counted in this process."""
        self._enter()
        self._loop.open_epoch()
        self._num_epochs += 1
        # A restore or a callback may have changed the weights, so all workers need new ones.
        self._version += 1
        num_batches = self._loop.program.num_batches
        scheduler = BatchScheduler(num_batches, self._max_staleness, self._version)
        self._epoch = _Epoch(scheduler, self._clock())
        return self._num_epochs

    def exchange(
        self, worker: int, version: int | None, result: TaskResult | None = None
    ) -> Task | Idle:
        """Accept a worker's last result and return its next task.

        ``version`` is that of the worker's weights; None if it has none.
        """
        if result is not None:
            self._accept(worker, result)
        epoch = self._epoch
        if epoch is None:
            return Idle(self._num_epochs)
        batch = epoch.scheduler.deal(worker)
        program = self._loop.program
        # All idle workers run a pending validation redundantly.
        if batch is None and not (program.has_validation and epoch.validation is None):
            return Idle(self._num_epochs)
        return Task(
            self._num_epochs,
            batch,
            None if batch is None else self._loop.rows_of(batch),
            epoch.scheduler.version,
            {}
            if version == epoch.scheduler.version
            else program.values(None if version is None else program.roles.live),
            program.loss_scale,
        )

    def forget(self, worker: int) -> None:
        """Reassign the batches of a lost worker."""
        if self._epoch is not None:
            self._epoch.scheduler.forget(worker)

    def end_epoch(self) -> EpochReport:
        """Close a completed epoch and return its report."""
        epoch, self._epoch = self._epoch, None
        if epoch is None or not epoch.scheduler.is_complete:
            raise RuntimeError("no epoch is complete")
        self._version = epoch.scheduler.version
        metrics = self._loop.close_epoch(epoch.increments, epoch.validation)
        statistics = epoch.scheduler.statistics
        report = self._report(metrics, self._loop.num_programs, self._loop)
        extra = {
            STALENESS_MEAN: statistics.mean_staleness,
            STALENESS_MAX: statistics.max_staleness,
            "async/gradients_per_s": len(statistics.staleness) / epoch.took_s,
            "async/gradients_stale": statistics.num_stale,
            "async/gradients_late": statistics.num_late,
        }
        return replace(report, extra=extra)

    def _accept(self, worker: int, result: TaskResult) -> None:
        epoch = self._epoch
        if epoch is None or result.epoch != self._num_epochs:
            return  # from an epoch that other workers have completed
        if result.batch is None or result.gradient is None:
            epoch.validation = dict(result.validation or {})
            return
        if epoch.scheduler.judge(worker, result.batch, result.version) != "apply":
            return
        self._loop.program.apply(result.gradient)
        epoch.increments = result.counters or []
        if epoch.scheduler.is_complete:
            epoch.took_s = max(self._clock() - epoch.begun, np.finfo(float).tiny)


class GradientWorker(Worker):
    """Worker that processes the server's tasks until none is left."""

    _loop: "GradientLoop"

    def prepare(self, server: Any, number: int) -> None:
        """Create the loop for the trials; ``number`` is unique in the trial."""
        from tune_tf.training.core.replicas import Replicas
        from tune_tf.training.parameter_server.gradient_loop import GradientLoop

        self._port.close()
        self._server = server
        self._number = number
        replicas = Replicas(self.devices)
        self.serve(GradientLoop(replicas, self._parallelism), replicas)

    def work(self) -> tuple[int, EpochReport]:
        """Process tasks until the epoch is complete; return its number and a report."""
        self._enter()
        result: TaskResult | None = None
        while True:
            task = self._exchange(result)
            if isinstance(task, Idle):
                return task.epoch, self._report({}, self._loop.num_programs)
            result = self._loop.do(task)

    def _exchange(self, result: TaskResult | None) -> Any:
        call = self._server.call.remote("exchange", self._number, self._loop.version, result)
        try:
            return ray.get(call)
        except RayActorError as error:
            raise WorkerLostError(f"{self} lost the parameter server: {error}") from None
