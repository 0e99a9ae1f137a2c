"""Training and validation steps of a model that is split into stages."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.build import build_for_training
from tune_tf.training.input.reader import rows_between
from tune_tf.training.keras_internals import layer_graph, replace_calls, standard_inputs
from tune_tf.training.replicas.batch_parts import add_gradients, split_rows, unpack_batch
from tune_tf.training.replicas.part_calls import GraphSpan, PartCalls
from tune_tf.training.replicas.parted_batches import after_all, sum_penalties
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.whole_batch import (
    WholeBatch,
    concatenate,
    differentiate,
    split_activations,
)
from tune_tf.training.scalars import inner_optimizer
from tune_tf.training.seeds import value_in_replica
from tune_tf.training.stages.stage_plan import calls_of
from tune_tf.training.step import Step
from tune_tf.workload import Workload


class StagePipeline:
    """Model replica that runs stage by stage and copies activations to the next stage's device.

    The model's variables are on the devices of their stages; the plan is that of ``stage_plan``.
    Gradients are computed where their operations are.
    """

    def __init__(self, model: keras.Model, plan: Sequence[int], devices: Sequence[str]) -> None:
        self.model = model
        self.devices = tuple(devices)
        self._calls = [
            (call, devices[stage])
            for call, stage in zip(calls_of(model), plan, strict=True)
            if not isinstance(call.operation, keras.layers.InputLayer)
        ]
        places = {
            id(variable): device
            for call, device in self._calls
            for variable in getattr(call.operation, "variables", ())
        }
        #: Device of each trainable variable.
        self.variable_devices = [places[id(v)] for v in model.trainable_variables]

    def forward(self, x: Any, *, training: bool) -> Any:
        """Return the outputs of the stages for some rows."""
        with replace_calls({self.model: self._run}):
            return self.model(x, training=training)

    def gradients(self, y_pred: Any, of_outputs: Sequence[Any], penalty: Any) -> list[Any]:
        """Return the gradients of the trainable variables, in order.

        They are those of the ``penalty``, a number or None, and of the loss, whose gradients by the
        outputs before their activations are given.
        """
        before, _ = split_activations(y_pred)
        targets = list(zip(keras.tree.flatten(before), of_outputs, strict=True))
        if penalty is not None:
            targets.append((penalty, tf.ones_like(penalty)))
        known = [each for each in targets if each[1] is not None]
        gradients: list[Any] = tf.compat.v1.gradients(
            [target for target, _ in known],
            [variable.value for variable in self.model.trainable_variables],
            [gradient for _, gradient in known],
            colocate_gradients_with_ops=True,
        )
        return gradients

    def _run(self, inputs: Any, training: Any = None, **_: Any) -> Any:
        model = self.model
        graph = layer_graph(model)
        values = dict(zip(map(id, graph.inputs), standard_inputs(model, inputs), strict=True))
        for call, device in self._calls:
            with tf.device(device):
                call.run(values, training)
        wanted = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
        return keras.tree.map_structure(lambda tensor: values[id(tensor)], wanted)


class StageStep(Step):
    """Step of a model that is split into stages, over several replicas.

    The first model replica owns the optimizer, the metrics and all state of a checkpoint. The
    others copy its weights and compute their part of the rows. All outputs are computed before the
    loss, which is that of the whole batch.

    Args:
        workload: The workload of the trials.
        pipelines: The model replicas.
        replicas: Their devices.
        micro_batches: Pieces into which a replica splits its rows, which are pipelined.
    """

    def __init__(
        self,
        workload: Workload,
        pipelines: Sequence[StagePipeline],
        replicas: Replicas,
        micro_batches: int,
    ) -> None:
        copies = [pipeline.model for pipeline in pipelines]
        super().__init__(workload, copies, replicas, micro_batches)
        self._pipelines = pipelines

    def build(self, sample: tuple[Any, ...]) -> None:
        """Create the variables of losses, metrics and optimizer."""
        _build_optimizer(self.model, self.replicas)
        build_for_training(self.model, sample, self.replicas)

    @functools.cached_property
    def _calls(self) -> list[PartCalls]:
        return [PartCalls(copy, self.who) for copy in self.copies]

    def check(self, num_rows: int, batch_size: int) -> None:
        """Refuse steps that are not those of Keras."""
        super().check(num_rows, batch_size)
        if self.has_custom_train or self.has_custom_test:
            name = "train_step" if self.has_custom_train else "test_step"
            raise WorkloadError(
                f"{type(self._workload).__name__} or its model has a custom {name}, which calls "
                "the whole model and so cannot run in stages: leave it out, or use kind 'mirrored'"
            )

    def train(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Train on a batch, all replicas and stages of it."""
        model, parts = self.model, self._parts(num_rows, self.micro_batches)
        passes = [self._forward(each, rows_between(batch, each.low, each.high)) for each in parts]
        whole = self._whole(batch, passes)
        with tf.device(self._pipelines[0].devices[-1]):
            found = differentiate(model, whole, self.replicas)
        loss, gradients = found.loss, found.of_variables
        devices = self._pipelines[0].variable_devices
        for part, each in zip(parts, passes, strict=True):
            of_outputs = [g if g is None else g[part.low : part.high] for g in found.of_outputs]
            penalty, scaled = each.penalty(model, (part.high - part.low) / num_rows)
            loss = loss if penalty is None else loss + penalty
            pipeline = self._pipelines[part.replica]
            gradients = _add_on(
                devices, gradients, pipeline.gradients(each.y_pred, of_outputs, scaled)
            )
        model.optimizer.apply(after_all(gradients), model.trainable_variables)
        self._copy_weights()
        return self._update_metrics(whole, loss, num_rows)

    def test(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Evaluate a batch, all replicas and stages of it."""
        passes, penalties = [], []
        for part in self._parts(num_rows, 1):
            rows = rows_between(batch, part.low, part.high)
            passes.append(self._forward(part, rows, training=False))
            penalties.append(passes[-1].penalty(self.model, (part.high - part.low) / num_rows)[0])
        whole = self._whole(batch, passes)
        with tf.device(self._pipelines[0].devices[-1]):
            loss = whole.loss(self.model, self.replicas, training=False)
            loss = loss + sum(penalty for penalty in penalties if penalty is not None)
        return self._update_metrics(whole, loss, num_rows)

    def _forward(self, part: "_Part", batch: Any, *, training: bool = True) -> "_PartPass":
        """Call a replica's stages with a part of a batch."""
        calls, pipeline = self._calls[part.replica], self._pipelines[part.replica]

        def call() -> Any:
            return pipeline.forward(unpack_batch(batch)[0], training=training)

        with GraphSpan() as span:
            y_pred = call() if part.is_whole else calls.watch(call)
            with tf.device(pipeline.devices[-1]):
                penalties = sum_penalties(calls.take_penalties())
        return _PartPass(y_pred, penalties, span)

    def _whole(self, batch: Any, passes: "Sequence[_PartPass]") -> WholeBatch:
        with tf.device(self._pipelines[0].devices[-1]):
            outputs = [split_activations(each.y_pred) for each in passes]
            before, activations = concatenate([each for each, _ in outputs]), outputs[0][1]
        spans = [each.span for each in passes]
        return WholeBatch(*unpack_batch(batch), before, activations, spans, self.who)

    def _update_metrics(self, whole: WholeBatch, loss: Any, num_rows: int) -> Any:
        with tf.device(self._pipelines[0].devices[-1]):
            return whole.update_metrics(self.model, loss, num_rows)

    def _parts(self, num_rows: int, micro_batches: int) -> "list[_Part]":
        """Return the micro-batches of all replicas in the order of their rows."""
        if not isinstance(num_rows, int):
            raise WorkloadError(
                "a model in stages needs batches of a known number of rows: batch the data set "
                "with drop_remainder=True, or use kind 'mirrored'"
            )
        parts = []
        for replica in range(len(self._pipelines)):
            begin, end = split_rows(num_rows, replica, len(self._pipelines))
            splits = (split_rows(end - begin, i, micro_batches) for i in range(micro_batches))
            parts += [(replica, begin + low, begin + high) for low, high in splits if low < high]
        return [_Part(*part, is_whole=len(parts) == 1) for part in parts]

    def begin(self, *, training: bool) -> None:
        """Reset the metrics; copy weights and statistics to the other replicas."""
        super().begin(training=training)
        if not training:
            return
        self._copy_weights()
        for number, copy in enumerate(self.copies[1:], 1):
            for variable, source in zip(_state(copy), _state(self.model), strict=True):
                variable.assign(value_in_replica(variable, source.value, number))

    def end(self, *, training: bool) -> None:
        """Merge moving statistics of the replicas into the first one."""
        if training and len(self.copies) > 1:
            for variables in zip(*map(_state, self.copies), strict=True):
                if tf.as_dtype(variables[0].dtype).is_floating:  # moving statistics
                    mean = tf.add_n([variable.value for variable in variables]) / len(variables)
                    for variable in variables:
                        variable.assign(mean)

    def _copy_weights(self) -> None:
        weights = self.model.trainable_variables
        for copy in self.copies[1:]:
            for variable, source in zip(copy.trainable_variables, weights, strict=True):
                variable.assign(source)


class _Part(NamedTuple):
    """Rows ``[low, high)`` of a batch that a replica processes at once."""

    replica: int
    low: int
    high: int
    is_whole: bool


class _PartPass(NamedTuple):
    """A call of the stages with a part of a batch, with the penalties of its activities."""

    y_pred: Any
    penalties: Any
    span: GraphSpan

    def penalty(self, model: keras.Model, fraction: float) -> tuple[Any, Any]:
        """Return the penalty in the loss of a batch, and as the optimizer scales it; or None.

        The part is a ``fraction`` of the batch.
        """
        if self.penalties is None:
            return None, None
        penalty = self.penalties * fraction
        return penalty, model.optimizer.scale_loss(penalty)


def _add_on(devices: Sequence[str], first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return the sums of gradients, each on its device."""
    sums = []
    for device, *gradients in zip(devices, first, second, strict=True):
        with tf.device(device):
            sums.append(add_gradients(*gradients))
    return sums


def _state(model: keras.Model) -> list[Any]:
    """Return the non-trainable variables: statistics and states of random generators."""
    trained = {id(variable) for variable in model.trainable_variables}
    return [variable for variable in model.variables if id(variable) not in trained]


def _build_optimizer(model: keras.Model, replicas: Replicas) -> None:
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
    with replicas.scope():
        model.optimizer.build(model.trainable_variables)
