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
from tune_tf.training.parameter_server.tasks import Array, BatchScheduler, Task, TaskResult
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

        self._scheduler = BatchScheduler(0, self._parallelism.max_staleness)
        self.serve(UpdateLoop(Replicas(self.devices), self._parallelism), None)

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        self._enter()
        self._loop.open_epoch()
        # A restore or a callback may have changed the weights, so all workers need new ones.
        num_batches, version = self._loop.program.num_batches, self._scheduler.version + 1
        self._scheduler = BatchScheduler(num_batches, self._parallelism.max_staleness, version)

    def exchange(self, version: int | None, result: TaskResult | None = None) -> Task | None:
        """Accept a worker's last result and return its next task; None if no batch is left.

        ``version`` is that of the worker's weights; None if it has none.
        """
        program = self._loop.program
        if result is not None and self._scheduler.accepts(result.batch, result.version):
            program.apply(result.gradient)
            self._increments = result.counters
        batch = self._scheduler.deal()
        if batch is None:
            return None
        rows = self._loop.rows_of(batch)
        return Task(batch, rows, *self.weights(version), program.loss_scale)

    def weights(self, version: int | None) -> tuple[int, dict[int, Array]]:
        """Return the version of the weights, and the values that a worker with another needs."""
        newest, program = self._scheduler.version, self._loop.program
        if version == newest:
            return newest, {}
        return newest, program.values(None if version is None else program.roles.live)

    def end_epoch(self, validation: Metrics) -> EpochReport:
        """Close a completed epoch, given its ``val_`` metrics, and return its report."""
        metrics = self._loop.close_epoch(self._increments, validation)
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
        self.serve(GradientLoop(replicas, self._parallelism), replicas)

    def work(self) -> EpochReport:
        """Compute gradients until no batch of the epoch is left."""
        self._enter()
        task = self._ask("exchange", self._loop.version)
        while task is not None:
            task = self._ask("exchange", task.version, self._loop.do(task))
        return self._report({}, self._loop.num_programs)

    def validate(self) -> Metrics:
        """Return the ``val_`` metrics of the server's weights; empty without validation rows."""
        return self._loop.validate(*self._ask("weights", self._loop.version))

    def _ask(self, method: str, *arguments: Any) -> Any:
        return ray.get(self._server.call.remote(method, *arguments))


class AsynchronousGroup(ProcessGroup):
    """Parameter server, which is the first process, and workers of a trial.

    The first bundles are the workers', one each; a further one is the server's.
    """

    def __init__(self, setup: WorkerSetup, bundles: Bundles) -> None:
        parallelism = setup.settings.parallelism
        cpus, num_workers = parallelism.server_cpus, parallelism.num_workers
        bundle = num_workers if cpus else 0
        name = "the parameter server"
        server = bundles.start(ParameterServer, 0, bundle, name, guest=not cpus)
        self._actors = [server, *bundles.start_workers(GradientWorker, num_workers)]
        share = TrialResources(max(1, cpus))
        self.call("set_up", replace(setup, resources=share), actors=self._holders)
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
