"""Training loop of a parameter server's worker: gradients of batches, and validation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.training.core.program import Program, are_finite, plain_metrics
from tune_tf.training.core.program_cache import ProgramCache, TrialProgram
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.step import ReplicaBuilder
from tune_tf.training.core.update import refuse_other_optimizers
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.parameter_server.tasks import (
    Array,
    Gradient,
    SparseGradient,
    Task,
    TaskResult,
)
from tune_tf.training.parameter_server.variable_roles import VariableRoles, refuse_streams
from tune_tf.workload import Config, Workload


class GradientLoop:
    """Loop that computes gradients of one trial after another, one task per call.

    Trials of one structure share programs. The server runs the workload's callbacks.
    """

    def __init__(
        self,
        workload: Workload,
        replicas: Replicas,
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
    ) -> None:
        self._name = type(workload).__name__
        self._replicas = replicas
        builder = ReplicaBuilder(workload, replicas, parallelism)
        self._programs = ProgramCache(builder, dry_run=self._dry_run)
        self._gradient_programs: dict[Program, GradientProgram] = {}
        self._trial: TrialProgram | None = None
        self._values: dict[int, Array] = {}
        #: Version of the worker's weights; None if it has none.
        self.version: int | None = None

    @property
    def num_programs(self) -> int:
        """Number of traced programs."""
        return self._programs.num_programs

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial, whose weights arrive with the first task."""
        refuse_streams(rows)
        self._trial = self._programs.find(config, rows, seed)
        self._programs.is_training = True
        self._values, self.version = {}, None
        self._gradient_programs = self._programs.retain(self._gradient_programs, self._trial)

    def do(self, task: Task) -> TaskResult:
        """Process a task and return its result."""
        self._values.update(task.weights)
        self.version = task.version
        trial = self._trial
        if trial is None:
            raise RuntimeError("no trial was started")
        rows, program = trial.rows, self._gradient_programs[trial.program]
        done = (task.epoch, task.batch, task.version)
        if task.batch is None or task.rows is None:
            program.load(self._values)
            return TaskResult(*done, validation=trial.program.validate(rows.validation))
        program.load(self._values, batch=task.batch)
        gradient = program.gradient(rows.train, task.rows, task.loss_scale)
        return TaskResult(*done, gradient, program.increments)

    def finish(self) -> None:
        """End the trial, and free its model unless another trial may get it."""
        self._trial = None
        self._gradient_programs = self._programs.retain(self._gradient_programs)
        self._programs.is_training = False

    def _dry_run(self, cached: TrialProgram) -> bool:
        made = GradientProgram(cached.program, f"the train_step of {self._name} or its model")
        self._gradient_programs[cached.program] = made
        return made.dry_run(cached.rows.train)


class GradientProgram:
    """Program that computes gradients but does not apply them.

    It runs the same training step as other kinds, Keras' or the user's, and intercepts the call of
    ``model.optimizer.apply``.

    Args:
        program: Program of the trial's model and step.
        who: Subject of error messages.

    Raises:
        WorkloadError: The model has further optimizers.
    """

    def __init__(self, program: Program, who: str) -> None:
        self.program = program
        self.model = model = program.model
        self._who = who
        refuse_other_optimizers(model, "asynchronous workers")
        self.roles = VariableRoles.of(model)
        #: Amount that each batch adds to each counter of the model.
        self.increments: list[Array] = []
        self._caught: Any = None
        model.optimizer.apply = self._catch
        self._gradient = program.graph_function(self._run_gradient, jit_compile=program.jit_compile)
        self._assign = tf.function(self._run_assign, autograph=False)

    def dry_run(self, train: Any) -> bool:
        """Trace the step on one batch, and return whether all gradients are finite.

        This also records what the batch adds to the counters.
        """
        before = self._counters()
        rows = np.arange(min(self.program.batch_size, self.program.num_rows), dtype=np.int32)
        gradient = self.gradient(train, rows)
        self.increments = [
            after - first for first, after in zip(before, self._counters(), strict=True)
        ]
        return are_finite(a for a in tf.nest.flatten(gradient.values) if a is not None)

    def load(self, values: Mapping[int, Array], *, batch: int = 0) -> None:
        """Set the variables to their values at the beginning of a batch.

        ``values`` are by index in ``model.variables``, and counters as at the beginning of the
        epoch.
        """
        shifts = dict(zip(self.roles.counters, self.increments, strict=True))
        variables = self.model.variables
        for index in values.keys() - set(self.roles.live):
            variables[index].assign(values[index])
        self._assign(
            [
                values[i] + np.asarray(batch, values[i].dtype) * shifts[i]
                if i in shifts
                else values[i]
                for i in self.roles.live
            ]
        )

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
        counted = [tf.identity(metric) for metric in model.metrics_variables]
        begun = [tf.identity(variables[i]) for i, _ in self.roles.statistics]
        self._caught = None
        batch = tf.nest.map_structure(lambda a: tf.gather(a, rows), train)
        step = self.program.step
        logs = step.train(0, batch, rows.shape[0])
        scale = getattr(model.optimizer, "dynamic_scale", None)
        values = [_unscaled(gradient, scale) for gradient in self._taken()]
        moves = [
            variables[i] - tf.cast(decay, first.dtype) * first
            for (i, decay), first in zip(self.roles.statistics, begun, strict=True)
        ]
        metrics = [
            metric - first for metric, first in zip(model.metrics_variables, counted, strict=True)
        ]
        if not step.has_own_train:
            return values, moves, metrics, None
        self.program.check_logs(logs)
        return values, moves, metrics, {k: tf.convert_to_tensor(v) for k, v in logs.items()}

    def _run_assign(self, values: list[tf.Tensor]) -> None:
        variables = self.model.variables
        for index, value in zip(self.roles.live, values, strict=True):
            variables[index].assign(value)

    def _catch(self, grads: Any, trainable_variables: Any = None) -> None:
        """Replace ``optimizer.apply`` while the step is traced."""
        if self._caught is not None:
            raise WorkloadError(
                f"{self._who} calls model.optimizer.apply more than once per batch, but a "
                "parameter server takes one gradient per batch: call it once, or use another kind "
                "of parallelism"
            )
        own = self.model.trainable_variables
        given = own if trainable_variables is None else trainable_variables
        by_id = {id(v): g for g, v in zip(grads, given, strict=True)}
        unknown = len(by_id.keys() - {id(variable) for variable in own})
        if unknown:
            raise WorkloadError(
                f"{self._who} applies gradients to {unknown} variable(s) that are not in "
                "model.trainable_variables: a parameter server keeps only those"
            )
        self._caught = [by_id.get(id(variable)) for variable in own]

    def _taken(self) -> list[Any]:
        caught, self._caught = self._caught, None
        if caught is None:
            raise WorkloadError(
                f"{self._who} never calls model.optimizer.apply (or apply_gradients), from which a "
                "worker gets the gradients: call it once per batch, or use another kind of "
                "parallelism"
            )
        return caught

    def _counters(self) -> list[Array]:
        variables = self.model.variables
        return [variables[i].numpy() for i in self.roles.counters]


def _unscaled(gradient: Any, scale: Any) -> Any:
    """Divide a gradient by the loss scale; a sparse one becomes a pair."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values if scale is None else gradient.values / scale
        return SparseGradient(values, gradient.indices)
    return gradient if gradient is None or scale is None else gradient / scale


def _as_array(tensor: Any) -> Array | None:
    return None if tensor is None else tensor.numpy()
