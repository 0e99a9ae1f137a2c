"""Traced updates of a parameter server from the gradients of its workers."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.result_keys import Metrics
from tune_tf.training.core.program import Program, plain_metrics
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.parameter_server.messages import (
    Array,
    Gradient,
    GradientValues,
    SparseGradient,
)
from tune_tf.training.parameter_server.variable_roles import VariableRoles
from tune_tf.workload import Workload

_SMALL = 1e-3


class UpdateProgram(Program):
    """Program that applies gradients as on one device, including clipping and schedules."""

    def __init__(
        self, workload: Workload, model: keras.Model, replicas: Replicas, **given: Any
    ) -> None:
        super().__init__(workload, model, replicas, **given)
        self.roles = VariableRoles.of(model)
        self._last_logs: Metrics | None = None
        self._apply = self._graph_function(self._run_apply, reduce_retracing=True)

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self._num_rows // self._batch_size)

    @property
    def has_validation(self) -> bool:
        """Whether the trial has validation rows."""
        return self._num_validation_rows > 0

    @property
    def loss_scale(self) -> float | None:
        """Current loss scale of the optimizer; None without loss scaling."""
        scale = getattr(self.model.optimizer, "dynamic_scale", None)
        return None if scale is None else float(scale.numpy())

    def rows_of(self, batch: int, order: Array) -> Array:
        """Return the row numbers of a batch."""
        return order[batch * self._batch_size : (batch + 1) * self._batch_size]

    def dry_run(self) -> bool:
        """Trace an update with small gradients and undo it; return whether weights were finite."""
        variables = [*self.model.variables, *self.model.optimizer.variables]
        before = [variable.numpy() for variable in variables]
        small: GradientValues = [
            np.full(v.shape, _SMALL, v.dtype) for v in self.model.trainable_variables
        ]
        self.apply(
            Gradient(
                small,
                [
                    np.zeros(variables[i].shape, variables[i].dtype)
                    for i, _ in self.roles.statistics
                ],
                [np.zeros(v.shape, v.dtype) for v in self.model.metrics_variables],
            )
        )
        found = [v.numpy() for v in self.model.trainable_variables]
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        return all(np.all(np.isfinite(np.asarray(value, np.float64))) for value in found)

    def begin(self) -> None:
        """Begin an epoch."""
        self.model.reset_metrics()
        self._last_logs = None

    def apply(self, gradient: Gradient) -> None:
        """Update weights, optimizer, statistics and metrics by the effect of a batch."""
        values = [tuple(v) if isinstance(v, SparseGradient) else v for v in gradient.values]
        self._apply(values, gradient.moves, gradient.metrics)
        if gradient.logs is not None:
            self._last_logs = dict(gradient.logs)

    def count(self, increments: list[Array]) -> None:
        """Advance the counters of the model by an epoch, given what each batch adds to each."""
        for index, each in zip(self.roles.counters, increments, strict=True):
            variable = self.model.variables[index]
            value = variable.numpy()
            variable.assign(value + np.asarray(self.num_batches, value.dtype) * each)

    def metrics(self) -> Metrics:
        """Return the metrics of the applied batches, as ``fit`` would log them."""
        metrics = plain_metrics(
            {k: tf.convert_to_tensor(v) for k, v in self.model.get_metrics_result().items()}
        )
        logs = self._last_logs
        return logs if logs is not None and set(logs) != set(metrics) else metrics

    def values(self, indices: Any = None) -> dict[int, Array]:
        """Return values of ``model.variables`` by index; all of them by default."""
        variables = self.model.variables
        wanted = range(len(variables)) if indices is None else indices
        return {i: variables[i].numpy() for i in wanted}

    def _run_apply(
        self, gradients: list[Any], moves: list[tf.Tensor], metrics: list[tf.Tensor]
    ) -> None:
        model = self.model
        trainable = model.trainable_variables
        optimizer = model.optimizer
        scale = getattr(optimizer, "dynamic_scale", None)
        whole = [
            scaled_for_optimizer(gradient, variable, scale)
            for gradient, variable in zip(gradients, trainable, strict=True)
        ]
        optimizer.apply(whole, trainable)
        for (index, decay), move in zip(self.roles.statistics, moves, strict=True):
            statistic = model.variables[index]
            statistic.assign(tf.cast(decay, move.dtype) * statistic + move)
        for metric, counted in zip(model.metrics_variables, metrics, strict=True):
            metric.assign(metric + counted)


def scaled_for_optimizer(gradient: Any, variable: Any, scale: Any) -> Any:
    """Multiply a gradient by the loss scale, because the optimizer divides by it."""
    if gradient is None:
        return None
    if isinstance(gradient, tuple):
        values, indices = gradient
        gradient = tf.IndexedSlices(values, indices, tf.constant(tuple(variable.shape)))
    if scale is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * scale, gradient.indices, gradient.dense_shape)
    return gradient * scale
