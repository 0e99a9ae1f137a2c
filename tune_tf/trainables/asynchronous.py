"""Trainable for one model whose workers send gradients to a parameter server asynchronously."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from tune_tf.resources import TrialResources
from tune_tf.result_keys import STALENESS_MAX, STALENESS_MEAN, Metrics
from tune_tf.trainables.processes import (
    Bundles,
    ProcessGroup,
    ProcessTrainable,
    Worker,
    WorkerSetup,
)
from tune_tf.trainables.trial_process import EpochReport
from tune_tf.training.parameter_server.tasks import Array, BatchScheduler, Gradient, Task
from tune_tf.training.system_metrics import sum_peak_memory

if TYPE_CHECKING:
    from tune_tf.training.parameter_server.gradient_loop import GradientLoop
    from tune_tf.training.parameter_server.update_loop import UpdateLoop


class ParameterServer(Worker):
    """Parameter server that applies gradients as they arrive and assigns batches to workers.

    Its methods run one after another, so each gradient is applied as a whole.
    """

    _loop: "UpdateLoop"

    def prepare(self) -> None:
        """Create the loop for the trials."""
        from tune_tf.training.parameter_server.update_loop import UpdateLoop
        from tune_tf.training.replicas.replicas import Replicas

        self.serve(UpdateLoop(Replicas(self.devices), self._parallelism), None)

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        self._enter()
        self._loop.open_epoch()
        num_batches = self._loop.program.num_batches
        self._scheduler = BatchScheduler(num_batches, self._parallelism.max_staleness)

    def exchange(self, gradient: Gradient | None = None) -> Task | None:
        """Accept a worker's last gradient and return its next task; None if no batch is left."""
        program, scheduler = self._loop.program, self._scheduler
        if gradient is not None and scheduler.accepts(gradient.batch, gradient.version):
            program.apply(gradient)
        batch = scheduler.deal()
        if batch is None:
            return None
        weights = program.values(program.roles.live)
        return Task(batch, self._loop.rows_of(batch), scheduler.version, weights)

    def weights(self) -> dict[int, Array]:
        """Return the values of all variables, by index."""
        return self._loop.program.values()

    def end_epoch(self, validation: Metrics) -> EpochReport:
        """Close a completed epoch, given its ``val_`` metrics, and return its report."""
        metrics = self._loop.close_epoch(validation)
        staleness = self._scheduler.staleness
        extra = {
            STALENESS_MEAN: sum(staleness) / len(staleness),
            STALENESS_MAX: max(staleness),
            "async/gradients_stale": self._scheduler.num_stale,
        }
        return replace(self._report(metrics, self._loop.num_programs, self._loop), extra=extra)


class GradientWorker(Worker):
    """Worker that computes gradients of the server's batches until none is left."""

    _loop: "GradientLoop"

    def prepare(self, server: Any) -> None:
        """Create the loop for the trials."""
        from tune_tf.training.parameter_server.gradient_loop import GradientLoop
        from tune_tf.training.replicas.replicas import Replicas

        self._server = server
        replicas = Replicas(self.devices)
        self.serve(GradientLoop(replicas, self._parallelism, self._rank), replicas)

    def work(self) -> EpochReport:
        """Compute gradients until no batch of the epoch is left."""
        self._enter()
        self._loop.load(self._ask("weights"))  # a restore or a callback may have changed any
        task = self._ask("exchange")
        while task is not None:
            task = self._ask("exchange", self._loop.do(task))
        return self._report({}, self._loop.num_programs)

    def validate(self) -> Metrics:
        """Return the ``val_`` metrics of the server's weights; empty without validation rows."""
        self._loop.load(self._ask("weights"))
        return self._loop.validate()

    def _ask(self, method: str, *arguments: Any) -> Any:
        return ray.get(self._server.call.remote(method, *arguments))


class AsynchronousGroup(ProcessGroup):
    """Parameter server, which is the first process, and workers of a trial, one per bundle.

    The server shares the CPUs of the first worker.
    """

    def __init__(self, setup: WorkerSetup, bundles: Bundles) -> None:
        server = bundles.start(ParameterServer, 0, 0, "the parameter server", guest=True)
        self._actors = [server, *bundles.start_workers(GradientWorker)]
        of_server = replace(setup, resources=TrialResources(1))
        self.call("set_up", of_server, actors=self._holders)
        self.devices = "; ".join(self.call("set_up", setup, actors=self._workers))
        self.call("prepare", actors=self._holders)
        self.call("prepare", server, actors=self._workers)

    @property
    def _holders(self) -> Sequence[Any]:
        return self._actors[:1]

    @property
    def _workers(self) -> Sequence[Any]:
        return self._actors[1:]

    def epoch(self) -> EpochReport:
        """Train and validate for one epoch."""
        self.call("begin_epoch", actors=self._holders)
        reports: list[EpochReport] = self.call("work", actors=self._workers)
        (validation,) = self.call("validate", actors=self._workers[:1])
        (report,) = self.call("end_epoch", validation, actors=self._holders)
        loads = [each.system_metrics for each in (report, *reports)]
        return replace(
            report,
            recycle=any(each.recycle for each in (report, *reports)),
            system_metrics=sum_peak_memory(reports[0].system_metrics, loads),
            extra=report.extra | {"num_workers": len(reports)},
        )


class AsynchronousTrainable(ProcessTrainable):
    """Trainable for one model whose workers send gradients to a parameter server asynchronously."""

    group_class = AsynchronousGroup
