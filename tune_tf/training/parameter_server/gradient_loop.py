"""Training loop of a parameter server's worker: gradients of batches, and validation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Parallelism
from tune_tf.result_keys import Metrics
from tune_tf.training.epoch import TrialInputs
from tune_tf.training.graph import GraphCache
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.parameter_server.tasks import (
    Array,
    Gradient,
    SparseGradient,
    Task,
    TaskResult,
)
from tune_tf.training.parameter_server.update_loop import VariableRoles, refuse_streams
from tune_tf.training.program import Program, plain_metrics
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.update import refuse_other_optimizers
from tune_tf.training.step import ReplicaBuilder
from tune_tf.workload import Config, Workload


class GradientLoop:
    """Loop that computes gradients of one trial after another, one task per call.

    The server runs the workload's callbacks.
    """

    def __init__(self, replicas: Replicas, parallelism: Parallelism) -> None:
        self._replicas = replicas
        self._parallelism = parallelism
        #: Number of traced graphs.
        self.num_programs = 0
        self._graphs = GraphCache()
        self._rows: DeviceRows
        self._program: Program | None = None
        self._gradients: GradientProgram
        self._values: dict[int, Array] = {}
        #: Version of the worker's weights; None if it has none.
        self.version: int | None = None

    def start(self, workload: Workload, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial, whose weights arrive with the first task."""
        refuse_streams(rows)
        builder = ReplicaBuilder(workload, self._replicas, self._parallelism)
        inputs = TrialInputs(config, rows, seed)
        step = builder.step(builder.build(inputs), inputs)
        self._program = Program(workload, step, rows, rows.batch_size(workload, config))
        self._program.prepare(self._graphs, config, rows, None)
        name = f"the train_step of {type(workload).__name__} or its model"
        self._gradients = GradientProgram(self._program, name)
        self._gradients.count(rows.train)
        self.num_programs += 1
        self._rows, self._values, self.version = rows, {}, None

    def do(self, task: Task) -> TaskResult:
        """Compute the gradient of a batch."""
        self._update(task.version, task.weights)
        program = self._gradients
        program.load(self._values, batch=task.batch)
        gradient = program.gradient(self._rows.train, task.rows, task.loss_scale)
        return TaskResult(task.batch, task.version, gradient, program.increments)

    def validate(self, version: int, weights: Mapping[int, Array]) -> Metrics:
        """Return the ``val_`` metrics of a version of the weights; empty without validation."""
        program = self._update(version, weights)
        if self._rows.validation is None:
            return {}
        self._gradients.load(self._values)
        return program.validate(self._rows.validation)

    def _update(self, version: int, weights: Mapping[int, Array]) -> Program:
        if self._program is None:
            raise RuntimeError("no trial was started")
        self._values.update(weights)
        self.version = version
        return self._program

    def finish(self) -> None:
        """End the trial."""
        self._program = None


class GradientProgram:
    """Program that computes gradients but does not apply them.

    It runs the same training step as other kinds, Keras' or the user's, and intercepts the call of
    ``model.optimizer.apply``. Error messages call that step ``step_name``.
    """

    def __init__(self, program: Program, step_name: str) -> None:
        self.program = program
        self.model = model = program.model
        self._step_name = step_name
        refuse_other_optimizers(model, "asynchronous workers")
        self.roles = VariableRoles.of(model)
        #: Amount that each batch adds to each counter of the model.
        self.increments: list[Array] = []
        self._intercepted: Any = None
        model.optimizer.apply = self._intercept
        self._gradient = program.graph_function(self._run_gradient, jit_compile=program.jit_compile)
        self._assign = tf.function(self._run_assign, autograph=False)

    def count(self, train: Any) -> None:
        """Set ``increments`` by running the step on one batch."""
        counters = [self.model.variables[i] for i in self.roles.counters]
        before = [counter.numpy() for counter in counters]
        rows = np.arange(min(self.program.batch_size, self.program.num_rows), dtype=np.int32)
        self.gradient(train, rows)
        self.increments = [
            counter.numpy() - value for counter, value in zip(counters, before, strict=True)
        ]

    def load(self, values: Mapping[int, Array], *, batch: int = 0) -> None:
        """Set the variables for a batch to values by index, with counters as the epoch begins."""
        for index in values.keys() - set(self.roles.live):
            self.model.variables[index].assign(values[index])
        at_batch = dict(values)
        for i, increment in zip(self.roles.counters, self.increments, strict=True):
            at_batch[i] = values[i] + np.asarray(batch, values[i].dtype) * increment
        self._assign([at_batch[i] for i in self.roles.live])

    def gradient(self, train: Any, rows: Array, loss_scale: float | None = None) -> Gradient:
        """Return the effect of a batch, given by its row numbers (int32).

        ``loss_scale`` is that of the server's optimizer; None without loss scaling.
        """
        if loss_scale is not None:
            self.model.optimizer.dynamic_scale.assign(loss_scale)
        *effect, logs = self._gradient(train, rows)
        values, moves, metrics = tf.nest.map_structure(_as_array, effect)
        return Gradient(values, moves, metrics, logs and plain_metrics(logs))

    def _run_gradient(self, train: Any, rows: tf.Tensor) -> tuple[Any, ...]:
        model = self.model
        variables = model.variables
        model.reset_metrics()
        metrics_before = [tf.identity(metric) for metric in model.metrics_variables]
        statistics_before = [tf.identity(variables[i]) for i, _ in self.roles.statistics]
        self._intercepted = None
        batch = tf.nest.map_structure(lambda a: tf.gather(a, rows), train)
        step = self.program.step
        logs = step.train(0, batch, rows.shape[0])
        if self._intercepted is None:
            raise WorkloadError(
                f"{self._step_name} never calls model.optimizer.apply (or apply_gradients), from "
                "which a worker gets the gradients: call it once per batch, or use another kind "
                "of parallelism"
            )
        scale = getattr(model.optimizer, "dynamic_scale", None)
        values = [_unscaled(gradient, scale) for gradient in self._intercepted]
        moves = [
            variables[i] - tf.cast(decay, before.dtype) * before
            for (i, decay), before in zip(self.roles.statistics, statistics_before, strict=True)
        ]
        metrics = [
            metric - before
            for metric, before in zip(model.metrics_variables, metrics_before, strict=True)
        ]
        if not step.has_custom_train:
            return values, moves, metrics, None
        self.program.step.check_logs(logs)
        return values, moves, metrics, {k: tf.convert_to_tensor(v) for k, v in logs.items()}

    def _run_assign(self, values: list[tf.Tensor]) -> None:
        variables = self.model.variables
        for index, value in zip(self.roles.live, values, strict=True):
            variables[index].assign(value)

    def _intercept(self, grads: Any, trainable_variables: Any = None) -> None:
        """Replace ``optimizer.apply`` while the step is traced."""
        if self._intercepted is not None:
            raise WorkloadError(
                f"{self._step_name} calls model.optimizer.apply more than once per batch, but a "
                "parameter server takes one gradient per batch: call it once, or use another kind "
                "of parallelism"
            )
        trainable = self.model.trainable_variables
        variables = trainable if trainable_variables is None else trainable_variables
        by_id = {id(v): g for g, v in zip(grads, variables, strict=True)}
        unknown = len(by_id.keys() - {id(variable) for variable in trainable})
        if unknown:
            raise WorkloadError(
                f"{self._step_name} applies gradients to {unknown} variable(s) that are not in "
                "model.trainable_variables: a parameter server keeps only those"
            )
        self._intercepted = [by_id.get(id(variable)) for variable in trainable]


def _unscaled(gradient: Any, scale: Any) -> Any:
    """Divide a gradient by the loss scale; a sparse one becomes a pair."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values if scale is None else gradient.values / scale
        return SparseGradient(values, gradient.indices)
    return gradient if gradient is None or scale is None else gradient / scale


def _as_array(tensor: Any) -> Array | None:
    return None if tensor is None else tensor.numpy()
