"""Worker process that computes gradients for a parameter server."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError

from tune_tf.errors import WorkerLostError
from tune_tf.trainables.multi_process.worker import Worker
from tune_tf.trainables.multi_process.worker_actor import WorkerActor
from tune_tf.training.parameter_server.tasks import Idle, TaskResult
from tune_tf.training.peak_memory import peak_memory_result

if TYPE_CHECKING:
    from tune_tf.training.parameter_server.gradient_loop import GradientLoop


@dataclass(frozen=True)
class WorkReport:
    """Report of a worker when the server's epoch is complete.

    Args:
        epoch: Number of that epoch.
        recycle: Whether the process should serve no other trial.
        system_metrics: Load of the worker's machine and its peak memory, by result key.
    """

    epoch: int
    recycle: bool
    system_metrics: dict[str, float]


class GradientWorker(Worker):
    """Worker that processes the server's tasks until none is left."""

    _loop: "GradientLoop"

    def prepare(self, server: Any, number: int) -> None:
        """Create the loop for the trials; ``number`` is unique in the trial."""
        from tune_tf.training.core.replicas import Replicas
        from tune_tf.training.parameter_server.gradient_loop import GradientLoop

        self._leave_port()
        self._server = server
        self._number = number
        replicas = Replicas(self._devices)
        self._serve(GradientLoop(self._workload, replicas, self._assignment.spread), replicas)

    def work(self) -> WorkReport:
        """Process tasks until the epoch is complete.

        Raises:
            WorkerLostError: The server died.
        """
        self._enter()
        outcome: TaskResult | None = None
        while True:
            task = self._exchange(outcome)
            if isinstance(task, Idle):
                recycle = self._is_recycled(self._loop.num_programs)
                return WorkReport(task.epoch, recycle, self._sampled() | peak_memory_result())
            outcome = self._loop.do(task)

    def _exchange(self, outcome: TaskResult | None) -> Any:
        try:
            return ray.get(
                self._server.do.remote("exchange", self._number, self._loop.version, outcome)
            )
        except RayActorError as error:
            raise WorkerLostError(f"{self} lost the parameter server: {error}") from None


class GradientWorkerActor(WorkerActor):
    """Ray actor of a gradient worker."""

    worker_class = GradientWorker
