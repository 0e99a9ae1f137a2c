"""Training loop of a parameter server: updates from the gradients of its workers."""

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Parallelism
from tune_tf.result_keys import Metrics
from tune_tf.training.build import batch_norms, layers_in
from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.epoch import TrialInputs, row_order
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.parameter_server.tasks import Array, Gradient, SparseGradient
from tune_tf.training.program import Program, plain_metrics
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Config, Workload


def refuse_streams(rows: DeviceRows) -> None:
    """Refuse rows that workers cannot pick by index."""
    if rows.is_streamed:
        raise WorkloadError(
            "asynchronous workers pick rows by index, but Data holds a data set: return arrays, "
            "or use another kind of parallelism"
        )


@dataclass(frozen=True)
class VariableRoles:
    """Variables of a model that change during training, grouped by how a batch changes them.

    Trainable variables are updated by the optimizer. Others follow ``new = decay * old + move``.
    The decay of BatchNormalization statistics is the layer's momentum, so the averages equal those
    of one device that processes the batches in the order of their gradients, however old a worker's
    statistics were. Variables such as states of random generators have decay 1, and the move is the
    difference made by the batch.

    Variables of frozen layers do not change. All are given by their index in ``model.variables``.
    """

    trainable: tuple[int, ...]
    others: tuple[tuple[int, float], ...]  # with decays

    @classmethod
    def of(cls, model: keras.Model) -> "VariableRoles":
        """Return the roles of a built model's variables."""
        decays = {
            id(statistic): float(layer.momentum)
            for layer in batch_norms(model)
            for statistic in (layer.moving_mean, layer.moving_variance)
        }
        fixed = {id(variable) for variable in model.trainable_variables} | {
            id(variable)
            for layer in layers_in(model)
            if not layer.trainable
            for variable in layer.variables
        }
        index = {id(variable): i for i, variable in enumerate(model.variables)}
        return cls(
            tuple(index[id(variable)] for variable in model.trainable_variables),
            tuple(
                (i, decays.get(id(variable), 1.0))
                for i, variable in enumerate(model.variables)
                if id(variable) not in fixed and tf.as_dtype(variable.dtype) != tf.bool
            ),
        )

    @property
    def live(self) -> tuple[int, ...]:
        """Indices of all variables that change."""
        return (*self.trainable, *(i for i, _ in self.others))


class UpdateLoop(GraphLoop):
    """Loop that applies gradients of one trial after another, one update per batch."""

    def __init__(self, replicas: Replicas, parallelism: Parallelism) -> None:
        super().__init__(replicas, parallelism)
        self._order: Array
        #: Update program of the current trial.
        self.program: UpdateProgram

    def start(self, workload: Workload, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial; refuse streamed rows."""
        refuse_streams(rows)
        super().start(workload, config, rows, seed)
        self.program = UpdateProgram(self.trial.program)

    def open_epoch(self) -> None:
        """Begin an epoch."""
        trial = self.trial
        trial.callbacks.epoch_begin(trial.epoch)
        self._order = row_order(trial.workload, trial.inputs, trial.epoch)
        self.program.begin()

    def rows_of(self, batch: int) -> Array:
        """Return the row numbers of a batch of this epoch."""
        size = self.trial.program.batch_size
        return self._order[batch * size : (batch + 1) * size]

    def close_epoch(self, validation: Metrics) -> Metrics:
        """End an epoch, given its ``val_`` metrics; return all its metrics."""
        trial = self.trial
        metrics = self.program.metrics()
        trial.epoch += 1
        return self._end_epoch(metrics | validation)

    def _callbacks(
        self, workload: Workload, program: Program, inputs: TrialInputs
    ) -> EpochCallbacks:
        callbacks, rows = super()._callbacks(workload, program, inputs), inputs.rows
        if callbacks.watch_validation and rows.num_validation and rows.validation is None:
            raise WorkloadError(
                f"{callbacks.watch_validation} has on_test_begin or on_test_end, which are called "
                "around validation, but the workers of a parameter server validate: leave it out, "
                "or use kind 'mirrored'"
            )
        return callbacks


class UpdateProgram:
    """Program that applies gradients as on one device, including clipping and schedules."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.model = program.model
        self.roles = VariableRoles.of(program.model)
        #: Batches of an epoch.
        self.num_batches = -(-program.num_rows // program.batch_size)
        self._last_logs: Metrics | None = None
        self._apply = program.graph_function(self._run_apply, reduce_retracing=True)

    def begin(self) -> None:
        """Begin an epoch."""
        self.model.reset_metrics()
        self._last_logs = None

    def apply(self, gradient: Gradient) -> None:
        """Update all variables, optimizer and metrics by the effect of a batch."""
        self._apply(gradient.values, gradient.moves, gradient.metrics)
        if gradient.logs is not None:
            self._last_logs = dict(gradient.logs)

    def metrics(self) -> Metrics:
        """Return the metrics of the applied batches, as ``fit`` would log them."""
        results = self.model.get_metrics_result()
        logs = self._last_logs
        if logs is not None and set(logs) != set(results):
            return logs
        return plain_metrics({name: tf.convert_to_tensor(v) for name, v in results.items()})

    def values(self, indices: Any = None) -> dict[int, Array]:
        """Return values of ``model.variables`` by index; all of them by default."""
        variables = self.model.variables
        indices = range(len(variables)) if indices is None else indices
        return {i: variables[i].numpy() for i in indices}

    def _run_apply(
        self, gradients: list[Any], moves: list[tf.Tensor], metrics: list[tf.Tensor]
    ) -> None:
        model = self.model
        trainable = model.trainable_variables
        gradients = [
            tf.IndexedSlices(*gradient, tf.constant(tuple(variable.shape)))
            if isinstance(gradient, SparseGradient)
            else gradient
            for gradient, variable in zip(gradients, trainable, strict=True)
        ]
        model.optimizer.apply(gradients, trainable)
        for (index, decay), move in zip(self.roles.others, moves, strict=True):
            variable = model.variables[index]
            variable.assign(tf.cast(decay, move.dtype) * variable + move)
        for metric, change in zip(model.metrics_variables, metrics, strict=True):
            metric.assign(metric + change)
