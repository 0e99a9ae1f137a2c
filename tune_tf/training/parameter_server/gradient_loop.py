"""Training loop of a parameter server's worker: gradients of batches, and validation."""

from collections.abc import Mapping
from typing import Any

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
)
from tune_tf.training.parameter_server.update_loop import VariableRoles, refuse_streams
from tune_tf.training.program import Program, plain_metrics
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.update import refuse_other_optimizers
from tune_tf.training.scalars import inner_optimizer
from tune_tf.training.seeds import value_in_replica
from tune_tf.training.step import ReplicaBuilder
from tune_tf.workload import Config, Workload


class GradientLoop:
    """Loop that computes gradients of one trial after another, one task per call.

    The server runs the workload's callbacks. Random generators differ by the worker's ``rank``; for
    rank 0 they draw what one device does.
    """

    def __init__(self, replicas: Replicas, parallelism: Parallelism, rank: int = 0) -> None:
        self._replicas = replicas
        self._parallelism = parallelism
        self._rank = rank
        #: Number of traced graphs.
        self.num_programs = 0
        self._graphs = GraphCache()
        self._rows: DeviceRows
        self._program: GradientProgram | None = None

    def start(self, workload: Workload, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial, whose weights arrive later."""
        refuse_streams(rows)
        builder = ReplicaBuilder(workload, self._replicas, self._parallelism)
        inputs = TrialInputs(config, rows, seed)
        step = builder.step(builder.build(inputs), inputs)
        program = Program(workload, step, rows, rows.batch_size(workload, config))
        program.prepare(self._graphs, config, rows, None)
        name = f"the train_step of {type(workload).__name__} or its model"
        self._program = GradientProgram(program, name, self._rank)
        self.num_programs += 1
        self._rows = rows

    def load(self, weights: Mapping[int, Array]) -> None:
        """Set the weights before an epoch or its validation."""
        self._current.load(weights)

    def do(self, task: Task) -> Gradient:
        """Compute the gradient of a batch."""
        self.load(task.weights)
        return self._current.gradient(task, self._rows.train)

    def validate(self) -> Metrics:
        """Return the ``val_`` metrics of the weights; empty without validation."""
        validation = self._rows.validation
        return {} if validation is None else self._current.program.validate(validation)

    @property
    def _current(self) -> "GradientProgram":
        if self._program is None:
            raise RuntimeError("no trial was started")
        return self._program

    def finish(self) -> None:
        """End the trial."""
        self._program = None


class GradientProgram:
    """Program that computes gradients but does not apply them.

    It runs the same training step as other kinds, Keras' or the user's, and intercepts the call of
    ``model.optimizer.apply``. Error messages call that step ``step_name``.
    """

    def __init__(self, program: Program, step_name: str, rank: int) -> None:
        self.program = program
        self.model = model = program.model
        self._step_name = step_name
        self._rank = rank
        refuse_other_optimizers(model, "asynchronous workers")
        if model.optimizer is not inner_optimizer(model):
            raise WorkloadError(
                "asynchronous workers do not scale losses as LossScaleOptimizer does, by a scale "
                "that follows from each update: use the policy mixed_bfloat16 in place of "
                "mixed_float16, or another kind of parallelism"
            )
        self.roles = VariableRoles.of(model)
        self._intercepted: Any = None
        model.optimizer.apply = self._intercept
        self._gradient = program.graph_function(self._run_gradient, jit_compile=program.jit_compile)

    def load(self, values: Mapping[int, Array]) -> None:
        """Set variables to values by index."""
        for index, value in values.items():
            variable = self.model.variables[index]
            variable.assign(value_in_replica(variable, value, self._rank))

    def gradient(self, task: Task, train: Any) -> Gradient:
        """Return the effect of the batch of a task."""
        *effect, logs = self._gradient(train, task.rows)
        values, moves, metrics = tf.nest.map_structure(_as_array, effect)
        logs = logs and plain_metrics(logs)
        return Gradient(task.batch, task.version, values, moves, metrics, logs)

    def _run_gradient(self, train: Any, rows: tf.Tensor) -> tuple[Any, ...]:
        model = self.model
        variables = model.variables
        model.reset_metrics()
        metrics_before = [tf.identity(metric) for metric in model.metrics_variables]
        others_before = [tf.identity(variables[i]) for i, _ in self.roles.others]
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
        values = [
            SparseGradient(gradient.values, gradient.indices)
            if isinstance(gradient, tf.IndexedSlices)
            else gradient
            for gradient in self._intercepted
        ]
        moves = [
            variables[i] - tf.cast(decay, before.dtype) * before
            for (i, decay), before in zip(self.roles.others, others_before, strict=True)
        ]
        metrics = [
            metric - before
            for metric, before in zip(model.metrics_variables, metrics_before, strict=True)
        ]
        if not step.has_custom_train:
            return values, moves, metrics, None
        self.program.step.check_logs(logs)
        return values, moves, metrics, {k: tf.convert_to_tensor(v) for k, v in logs.items()}

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


def _as_array(tensor: Any) -> Array | None:
    return None if tensor is None else tensor.numpy()
