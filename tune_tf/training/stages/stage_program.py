"""Traced epoch of a model that is split into stages."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.build import build_losses
from tune_tf.training.core.gradients import add_gradients
from tune_tf.training.core.program import BatchSettings, Program
from tune_tf.training.core.row_weights import loss_metric, split_rows, track_loss, unpack_batch
from tune_tf.training.core.scalars import Scalar, inner_optimizer, scalars_of
from tune_tf.training.core.step import Step
from tune_tf.training.core.traced_scalar import TracedScalars
from tune_tf.training.stages.stage_devices import StageDevices
from tune_tf.training.stages.stage_pipeline import StagePipeline
from tune_tf.workload import Workload


class StageProgram(Program):
    """Program of one epoch over replicas and stages.

    The first model replica owns the optimizer, the metrics and all state of a checkpoint. The
    others copy its weights and compute their part of the rows.

    Args:
        copies: Model replicas with their variables on the devices of their stages.
        grid: Devices of the replicas and stages.
        plan: Stage of each call of a model.

    Raises:
        WorkloadError: The model cannot be trained in stages.
    """

    def __init__(
        self,
        workload: Workload,
        copies: Sequence[keras.Model],
        grid: StageDevices,
        plan: Sequence[int],
        settings: BatchSettings,
        **given: Any,
    ) -> None:
        self._copies = tuple(copies)
        self._pipelines = [
            StagePipeline(copy, plan, row) for copy, row in zip(copies, grid.rows, strict=True)
        ]
        _build_optimizer(copies[0], grid)
        for copy in copies[1:]:
            build_losses(copy, settings.sample, grid)
        super().__init__(workload, copies[0], grid, settings, **given)

    def _trace_scalars(self, scalars: list[Scalar]) -> TracedScalars:
        others = [scalars_of(copy) for copy in self._copies[1:]] if scalars else []
        return self._traced_scalars_of(list(zip(scalars, *others, strict=True)))

    def _steps(self, micro_batches: int) -> tuple[Step, Step]:
        for own, name in (
            (self._has_own_train_step, "train_step"),
            (self._has_own_test_step, "test_step"),
        ):
            if own:
                raise WorkloadError(
                    f"{type(self._workload).__name__} or its model has a custom {name}, which "
                    "calls the whole model and so cannot run in stages: leave it out, or use kind "
                    "'mirrored'"
                )
        self._micro_batches = micro_batches
        self._tracker = loss_metric(self.model)
        return self._train_batch, self._test_batch

    def _train_batch(self, replica: int, batch: Any, num_rows: int) -> None:
        first = self._pipelines[0]
        total: Any = 0.0
        gradients: list[Any] = [None] * len(self.model.trainable_variables)
        for pipeline, piece, share in self._pieces(batch, num_rows, self._micro_batches):
            loss, more, y_pred = pipeline.gradients(piece, share)
            self._measure(piece, y_pred)
            total = total + loss
            for number, gradient in enumerate(more):
                with tf.device(first.device_of(number)):
                    gradients[number] = add_gradients(gradients[number], gradient)
        self.model.optimizer.apply(gradients, self.model.trainable_variables)
        self._copy_weights()
        track_loss(self._tracker, total, num_rows, 1)

    def _test_batch(self, replica: int, batch: Any, num_rows: int) -> None:
        total: Any = 0.0
        for pipeline, piece, share in self._pieces(batch, num_rows, 1):
            y_pred = pipeline.predict(piece[0])
            total = total + pipeline.loss(piece, y_pred, share=share, training=False)
            self._measure(piece, y_pred)
        track_loss(self._tracker, total, num_rows, 1)

    def _pieces(
        self, batch: Any, num_rows: int, micro_batches: int
    ) -> Iterator[tuple[StagePipeline, Any, float]]:
        """Yield each replica's micro-batches, with their fraction of the batch's rows."""
        for replica, pipeline in enumerate(self._pipelines):
            begin, end = split_rows(num_rows, replica, len(self._pipelines))
            for number in range(micro_batches):
                low, high = (begin + row for row in split_rows(end - begin, number, micro_batches))
                if low < high:
                    piece = tf.nest.map_structure(lambda a, i=low, j=high: a[i:j], batch)
                    yield pipeline, piece, (high - low) / num_rows

    def _measure(self, batch: Any, y_pred: Any) -> None:
        x, y, sample_weight = unpack_batch(batch)
        with tf.device(self._pipelines[0].devices[-1]):
            self.model.compute_metrics(x, y, y_pred, sample_weight)

    def _begin(self, *, training: bool) -> None:
        super()._begin(training=training)
        for copy in self._copies[1:]:
            copy.reset_metrics()
        if not training:
            return
        self._copy_weights()
        for number, copy in enumerate(self._copies[1:], 1):
            for own, of_first in zip(_state(copy), _state(self.model), strict=True):
                own.assign(of_first.value + _seed_offset(own, number))

    def _end(self, *, training: bool) -> None:
        """Merge metrics and moving statistics of the replicas into the first one."""
        if len(self._copies) == 1:
            return
        counted = {metric.name: metric for metric in self.model.metrics}
        for copy in self._copies[1:]:  # these track only the losses of single outputs
            for metric in copy.metrics:
                if metric.name.endswith("_loss"):
                    for own, more in zip(
                        counted[metric.name].variables, metric.variables, strict=True
                    ):
                        own.assign_add(more)
        if training:
            for variable, *more in zip(*map(_state, self._copies), strict=True):
                if tf.as_dtype(variable.dtype).is_floating:  # moving statistics
                    mean = tf.add_n([variable.value, *(each.value for each in more)])
                    for each in (variable, *more):
                        each.assign(mean / len(self._copies))

    def _copy_weights(self) -> None:
        for copy in self._copies[1:]:
            for own, of_first in zip(
                copy.trainable_variables, self.model.trainable_variables, strict=True
            ):
                own.assign(of_first)


def _state(model: keras.Model) -> list[Any]:
    """Return the non-trainable variables: statistics and states of random generators."""
    trained = {id(variable) for variable in model.trainable_variables}
    return [variable for variable in model.variables if id(variable) not in trained]


def _seed_offset(variable: Any, replica: int) -> Any:
    """Return an offset that makes a replica's random generators differ from the first replica's."""
    if variable.name == "seed_generator_state":
        return tf.constant([replica, 0], variable.dtype)
    return tf.zeros([], variable.dtype)


def _build_optimizer(model: keras.Model, grid: StageDevices) -> None:
    """Build the optimizer with its slots and updates on the devices of their variables."""
    optimizer = inner_optimizer(model)
    create, update = optimizer.add_variable_from_reference, optimizer.update_step

    def create_beside(reference_variable: Any, *arguments: Any, **settings: Any) -> Any:
        with tf.device(reference_variable.value.device):
            return create(reference_variable, *arguments, **settings)

    def update_beside(gradient: Any, variable: Any, learning_rate: Any) -> Any:
        with tf.device(variable.device):
            return update(gradient, variable, learning_rate)

    optimizer.add_variable_from_reference = create_beside
    optimizer.update_step = update_beside
    with grid.scope():
        model.optimizer.build(model.trainable_variables)
