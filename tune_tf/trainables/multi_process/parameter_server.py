"""The process that keeps the weights of an asynchronous trial and deals out its batches."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.trainables.multi_process.worker import EpochReport, Worker
from tune_tf.trainables.multi_process.worker_actor import WorkerActor
from tune_tf.training.parameter_server.batch_scheduler import BatchScheduler, StalenessStatistics
from tune_tf.training.parameter_server.messages import Array, Idle, Task, TaskResult

if TYPE_CHECKING:
    from tune_tf.training.parameter_server.update_loop import UpdateLoop


@dataclass
class _Epoch:
    """An epoch under way.

    Args:
        scheduler: Of its batches.
        begun: When, in seconds.
        took_s: Until its last batch was applied.
        increments: What each batch adds to each counter of the model.
        validation: Metrics of the validation; None before it.
    """

    scheduler: BatchScheduler
    begun: float
    took_s: float = 0.0
    increments: list[Array] = field(default_factory=list)
    validation: dict[str, Any] | None = None


@dataclass(frozen=True)
class UpdateReport:
    """What a parameter server reports of an epoch.

    Args:
        epoch: What every process reports.
        statistics: What became of the gradients.
        gradients_per_s: Gradients that were applied in a second, the validation not counted.
    """

    epoch: EpochReport
    statistics: StalenessStatistics
    gradients_per_s: float


class ParameterServer(Worker):
    """Applies gradients as they come, and tells each worker what to do next.

    Its methods are called one after another, so a gradient is applied as a whole.
    """

    _loop: "UpdateLoop"

    def __str__(self) -> str:
        """Return who this is, for a message."""
        return f"the parameter server on {self._node}"

    def prepare(self, max_staleness: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Get ready for trials.

        Args:
            max_staleness: Updates that a gradient may be behind.
            clock: Seconds that only grow.
        """
        from tune_tf.training.core.replicas import Replicas
        from tune_tf.training.parameter_server.update_loop import UpdateLoop

        self._leave_port()
        self._max_staleness = max_staleness
        self._clock = clock
        loop = UpdateLoop(self._workload, Replicas(self._devices), self._assignment.spread)
        self._serve(loop, None)
        self._num_epochs = 0
        self._version = 0
        self._epoch: _Epoch | None = None

    def begin_epoch(self) -> int:
        """Open an epoch; return its number in the life of this process."""
        self._enter()
        self._loop.open_epoch()
        self._num_epochs += 1
        # Weights may have been restored or changed by a callback since: no worker has these.
        self._version += 1
        num_batches = self._loop.program.num_batches
        scheduler = BatchScheduler(num_batches, self._max_staleness, self._version)
        self._epoch = _Epoch(scheduler, self._clock())
        return self._num_epochs

    def exchange(
        self, worker: int, version: int | None, outcome: TaskResult | None = None
    ) -> Task | Idle:
        """Take what a worker brings and tell it what to do next.

        Args:
            worker: Its number.
            version: Version of the weights that it has; None if it has none.
            outcome: What came of its last task; None at first.
        """
        if outcome is not None:
            self._take(worker, outcome)
        epoch = self._epoch
        if epoch is None:
            return Idle(self._num_epochs)
        batch = epoch.scheduler.deal(worker)
        if batch is None and not self._validates(epoch):
            return Idle(self._num_epochs)
        program = self._loop.program
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
        """Deal again what a worker that is gone was doing."""
        if self._epoch is not None:
            self._epoch.scheduler.forget(worker)

    def end_epoch(self) -> UpdateReport:
        """Close an epoch that is complete."""
        epoch, self._epoch = self._epoch, None
        if epoch is None or not epoch.scheduler.is_complete:
            raise RuntimeError("no epoch is complete")
        self._version = epoch.scheduler.version
        metrics = self._loop.close_epoch(epoch.increments, epoch.validation)
        statistics = epoch.scheduler.statistics
        return UpdateReport(
            self._report(metrics), statistics, len(statistics.staleness) / epoch.took_s
        )

    def _take(self, worker: int, outcome: TaskResult) -> None:
        epoch = self._epoch
        if epoch is None or outcome.epoch != self._num_epochs:
            return  # of an epoch that others have completed
        if outcome.batch is None or outcome.gradient is None:
            epoch.validation = dict(outcome.validation or {})
            return
        if epoch.scheduler.judge(worker, outcome.batch, outcome.version) != "apply":
            return
        self._loop.apply(outcome.gradient)
        epoch.increments = outcome.counters or []
        if epoch.scheduler.is_complete:
            epoch.took_s = max(self._clock() - epoch.begun, np.finfo(float).tiny)

    def _validates(self, epoch: _Epoch) -> bool:
        """Return whether the validation is still to be done; all that are idle do it at once."""
        return epoch.validation is None and self._loop.program.has_validation


class ParameterServerActor(WorkerActor):
    """A parameter server's process."""

    worker_class = ParameterServer
    title = "the parameter server"
