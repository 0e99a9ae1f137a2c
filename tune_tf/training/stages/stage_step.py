"""Training and validation steps of a model that is split into stages."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.batch_parts import (
    add_gradients,
    split_rows,
    track_loss,
    unpack_batch,
    weigh_loss,
)
from tune_tf.training.core.build import build_for_training, build_losses
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import inner_optimizer
from tune_tf.training.core.step import Step, slice_after
from tune_tf.training.input.reader import rows_between
from tune_tf.training.stages.stage_plan import Call, calls_of
from tune_tf.workload import Workload


class _Stage(NamedTuple):
    """Calls of one device as a separate model that shares the layers.

    Inputs from earlier stages and outputs are ids of symbolic tensors.
    """

    model: keras.Model
    device: str
    inputs: list[int]
    outputs: list[int]


class StagePipeline:
    """Model replica that runs stage by stage and copies activations to the next stage's device.

    TensorFlow places gradient operations freely. So each stage has a separate tape and is
    differentiated on its device, given the gradients of the later stages. The model's variables are
    on the devices of their stages; the plan is that of ``stage_plan``.
    """

    def __init__(self, model: keras.Model, plan: Sequence[int], devices: Sequence[str]) -> None:
        self.model = model
        self.devices = tuple(devices)
        self._outputs = _outputs(model)
        self._calls = calls_of(model)  # kept alive: values are keyed by the ids of its tensors
        self._stages = _stages(model, self._calls, plan, self.devices)
        numbers = {
            id(variable): number
            for number, stage in enumerate(self._stages)
            for variable in stage.model.variables
        }
        self._stage_numbers = [numbers[id(v)] for v in model.trainable_variables]
        #: Device of each trainable variable.
        self.variable_devices = [self.devices[number] for number in self._stage_numbers]

    def predict(self, x: Any) -> Any:
        """Return the model's outputs for some rows."""
        values: dict[int, Any] = {}
        for stage in self._stages:
            self._run(stage, x, values)
        return self._predictions(values)

    def loss(self, batch: Any, y_pred: Any, *, share: float, training: bool) -> Any:
        """Return the loss of some rows, weighted so that the parts of a batch add up to its loss.

        ``share`` is their fraction of the batch's rows.
        """
        x, y, sample_weight = unpack_batch(batch)
        with tf.device(self.devices[-1]):
            loss = self.model.compute_loss(x, y, y_pred, sample_weight, training=training)
            return weigh_loss(loss, share, self.model, 1)

    def gradients(self, batch: Any, share: float) -> tuple[Any, list[Any], Any]:
        """Return loss, gradients of the trainable variables in order, and outputs for some rows.

        ``share`` is their fraction of the batch's rows.
        """
        values: dict[int, Any] = {}
        tapes = [tf.GradientTape() for _ in self._stages]
        for stage, tape in zip(self._stages, tapes, strict=True):
            with tape:
                self._run(stage, batch[0], values, tape)
        y_pred = self._predictions(values)
        # Every tape records the loss, but only its own stage of the model, so each covers all
        # paths from that stage to the loss: outputs, penalties and others.
        with contextlib.ExitStack() as recording:
            for tape in tapes:
                recording.enter_context(tape)
            loss = self.loss(batch, y_pred, share=share, training=True)
            with tf.device(self.devices[-1]):
                scaled = self.model.optimizer.scale_loss(loss)
        variables = self.model.trainable_variables
        gradients: list[Any] = [None] * len(variables)
        upstream: dict[int, Any] = {}  # gradients from later stages, by their input tensor
        for number, stage in reversed(list(enumerate(self._stages))):
            indices = [i for i, each in enumerate(self._stage_numbers) if each == number]
            inputs = [key for key in stage.inputs if values[key].dtype.is_floating]
            outputs = [key for key in stage.outputs if upstream.get(key) is not None]
            with tf.device(stage.device):
                variable_gradients, input_gradients = tapes[number].gradient(
                    [scaled, *(values[key] for key in outputs)],
                    ([variables[i] for i in indices], [values[key] for key in inputs]),
                    output_gradients=[tf.ones_like(scaled), *(upstream[key] for key in outputs)],
                )
            for i, gradient in zip(indices, variable_gradients, strict=True):
                gradients[i] = gradient
            for key, gradient in zip(inputs, input_gradients, strict=True):
                upstream[key] = add_gradients(upstream.get(key), gradient)
        return loss, gradients, y_pred

    def _run(
        self, stage: _Stage, x: Any, values: dict[int, Any], tape: tf.GradientTape | None = None
    ) -> None:
        """Run a stage for training, recorded by a tape, or for validation."""
        with tf.device(stage.device):
            inputs = [values[key] for key in stage.inputs]
            if tape is not None:
                tape.watch([each for each in inputs if each.dtype.is_floating])
            x = x if stage is self._stages[0] else inputs
            outputs = keras.tree.flatten(stage.model(x, training=tape is not None))
        values |= dict(zip(stage.outputs, outputs, strict=True))

    def _predictions(self, values: dict[int, Any]) -> Any:
        return keras.tree.map_structure(lambda tensor: values[id(tensor)], self._outputs)


def _stages(
    model: keras.Model, calls: Sequence[Call], plan: Sequence[int], devices: Sequence[str]
) -> list[_Stage]:
    tensors = {id(t): t for call in calls for t in (*call.inputs, *call.outputs)}
    stage_of: dict[int, int] = {}  # stage that computes a tensor
    uses: list[tuple[int, int]] = []  # tensor, stage
    for call, stage in zip(calls, plan, strict=True):
        uses += [(id(tensor), stage) for tensor in call.inputs]
        stage_of |= {id(tensor): stage for tensor in call.outputs}
    final = [id(tensor) for tensor in keras.tree.flatten(_outputs(model))]
    stages = []
    for number, device in enumerate(devices):
        inputs = _unique(key for key, stage in uses if stage == number and stage_of[key] < number)
        needed_later = {key for key, stage in uses if stage > number}
        computed = [key for key, stage in stage_of.items() if stage == number]
        outputs = [key for key in computed if key in needed_later]
        outputs += _unique(key for key in final if key in computed and key not in needed_later)
        x = _inputs(model) if number == 0 else [tensors[key] for key in inputs]
        # TensorFlow's graph optimizer orders sums by node names, so an automatic name would matter.
        part = keras.Model(x, [tensors[key] for key in outputs], name=f"stage_{number}")
        stages.append(_Stage(part, device, inputs, outputs))
    return stages


def _unique(keys: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(keys))


def _inputs(model: keras.Model) -> Any:
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _outputs(model: keras.Model) -> Any:
    return model.outputs[0] if isinstance(model, keras.Sequential) else model.output


class StageStep(Step):
    """Step of a model that is split into stages, over several replicas.

    The first model replica owns the optimizer, the metrics and all state of a checkpoint. The
    others copy its weights and compute their part of the rows.

    Args:
        workload: The workload of the trials.
        pipelines: The model replicas.
        replicas: Their devices.
        micro_batches: Pieces into which a replica splits its rows.
        saves_memory: Whether a replica begins a micro-batch only after the one before, so that
            memory holds the activations of one. Otherwise, they are pipelined.
    """

    def __init__(
        self,
        workload: Workload,
        pipelines: Sequence[StagePipeline],
        replicas: Replicas,
        micro_batches: int,
        saves_memory: bool,
    ) -> None:
        copies = [pipeline.model for pipeline in pipelines]
        super().__init__(workload, copies, replicas, micro_batches)
        self._pipelines = pipelines
        self._saves_memory = saves_memory

    def build(self, sample: tuple[Any, ...]) -> None:
        """Create the variables of losses, metrics and optimizer."""
        _build_optimizer(self.model, self.replicas)
        for copy in self.copies[1:]:
            build_losses(copy, sample, self.replicas)
        build_for_training(self.model, sample, self.replicas)

    def check(self, num_rows: int, batch_size: int) -> None:
        """Refuse steps that are not those of Keras."""
        if self.has_custom_train or self.has_custom_test:
            name = "train_step" if self.has_custom_train else "test_step"
            raise WorkloadError(
                f"{type(self._workload).__name__} or its model has a custom {name}, which calls "
                "the whole model and so cannot run in stages: leave it out, or use kind 'mirrored'"
            )

    def train(self, replica: int, batch: Any, num_rows: int) -> None:
        """Train on a batch, all replicas and stages of it."""
        total: Any = 0.0
        gradients: list[Any] = [None] * len(self.model.trainable_variables)
        devices = self._pipelines[0].variable_devices
        for pipeline, pieces in self._pieces(num_rows, self.micro_batches):
            loss, replica_gradients = self._gradients(pipeline, batch, pieces, num_rows)
            total = total + loss
            gradients = _add_on(devices, gradients, replica_gradients)
        self.model.optimizer.apply(gradients, self.model.trainable_variables)
        self._copy_weights()
        track_loss(self.model, total, num_rows, 1)

    def _gradients(
        self, pipeline: StagePipeline, batch: Any, pieces: Sequence[tuple[int, int]], num_rows: int
    ) -> tuple[Any, list[Any]]:
        """Return loss and gradients of a replica's micro-batches, given their rows."""
        loss: Any = 0.0
        gradients: list[Any] = [None] * len(self.model.trainable_variables)
        for low, high in pieces:
            piece = slice_after(gradients if self._saves_memory else [], batch, low, high)
            piece_loss, piece_gradients, y_pred = pipeline.gradients(piece, (high - low) / num_rows)
            self._compute_metrics(piece, y_pred)
            loss = loss + piece_loss
            gradients = _add_on(pipeline.variable_devices, gradients, piece_gradients)
        return loss, gradients

    def test(self, replica: int, batch: Any, num_rows: int) -> None:
        """Evaluate a batch, all replicas and stages of it."""
        total: Any = 0.0
        for pipeline, pieces in self._pieces(num_rows, 1):
            for low, high in pieces:
                piece = rows_between(batch, low, high)
                y_pred = pipeline.predict(piece[0])
                share = (high - low) / num_rows
                total = total + pipeline.loss(piece, y_pred, share=share, training=False)
                self._compute_metrics(piece, y_pred)
        track_loss(self.model, total, num_rows, 1)

    def _pieces(
        self, num_rows: int, micro_batches: int
    ) -> Iterator[tuple[StagePipeline, list[tuple[int, int]]]]:
        """Yield each replica with the rows ``[low, high)`` of its micro-batches."""
        if not isinstance(num_rows, int):
            raise WorkloadError(
                "a model in stages needs batches of a known number of rows: batch the data set "
                "with drop_remainder=True, or use kind 'mirrored'"
            )
        for replica, pipeline in enumerate(self._pipelines):
            begin, end = split_rows(num_rows, replica, len(self._pipelines))
            splits = (split_rows(end - begin, i, micro_batches) for i in range(micro_batches))
            yield pipeline, [(begin + low, begin + high) for low, high in splits if low < high]

    def _compute_metrics(self, batch: Any, y_pred: Any) -> None:
        x, y, sample_weight = unpack_batch(batch)
        with tf.device(self._pipelines[0].devices[-1]):
            self.model.compute_metrics(x, y, y_pred, sample_weight)

    def begin(self, *, training: bool) -> None:
        """Reset the metrics; copy weights and statistics to the other replicas."""
        super().begin(training=training)
        if not training:
            return
        self._copy_weights()
        for number, copy in enumerate(self.copies[1:], 1):
            for variable, source in zip(_state(copy), _state(self.model), strict=True):
                variable.assign(source.value + _seed_offset(variable, number))

    def end(self, *, training: bool) -> None:
        """Merge metrics and moving statistics of the replicas into the first one."""
        if len(self.copies) == 1:
            return
        totals = {metric.name: metric for metric in self.model.metrics}
        for copy in self.copies[1:]:  # these track only the losses of single outputs
            for metric in copy.metrics:
                if metric.name.endswith("_loss"):
                    total = totals[metric.name]
                    for variable, part in zip(total.variables, metric.variables, strict=True):
                        variable.assign_add(part)
        if training:
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


def _seed_offset(variable: Any, replica: int) -> Any:
    """Return an offset that makes a replica's random generators differ from the first replica's."""
    if variable.name == "seed_generator_state":
        return tf.constant([replica, 0], variable.dtype)
    return tf.zeros([], variable.dtype)


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
