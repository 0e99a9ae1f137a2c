"""Training and validation steps of a model that is split into stages."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.batch_parts import (
    add_gradients,
    loss_is_mean,
    loss_metric,
    split_rows,
    track_loss,
    unpack_batch,
    weigh_loss,
)
from tune_tf.training.core.build import build_for_training, build_losses
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import inner_optimizer
from tune_tf.training.core.step import has_own_test_step, has_own_train_step
from tune_tf.training.stages.stage_plan import Call, calls_of
from tune_tf.workload import Workload


class _Stage(NamedTuple):
    """Calls of one device as a separate model that shares the layers.

    ``taken`` and ``made`` are the ids of symbolic tensors from earlier and for later stages.
    """

    model: keras.Model
    device: str
    taken: list[int]
    made: list[int]


class StagePipeline:
    """Model replica that runs stage by stage and copies activations to the next stage's device.

    TensorFlow places gradient operations freely. So each stage has a separate tape and is
    differentiated on its device, given the gradients of the later stages.

    Args:
        model: Sequential or functional model with its variables on the devices of their stages.
        plan: Stage of each of its calls (see ``stage_plan``).
        devices: Devices of the stages.
    """

    def __init__(self, model: keras.Model, plan: Sequence[int], devices: Sequence[str]) -> None:
        self.model = model
        self.devices = tuple(devices)
        self._outputs = _outputs(model)
        self._calls = calls_of(model)  # kept alive: values are keyed by the ids of its tensors
        self._stages = _stages(model, self._calls, plan, self.devices)
        stage_of = {
            id(variable): stage
            for stage, part in enumerate(self._stages)
            for variable in part.model.variables
        }
        self._stage_of_variable = [stage_of[id(v)] for v in model.trainable_variables]
        #: Device of each trainable variable.
        self.variable_devices = [self.devices[stage] for stage in self._stage_of_variable]

    def predict(self, x: Any) -> Any:
        """Return the model's outputs for some rows."""
        values: dict[int, Any] = {}
        for stage in self._stages:
            self._run(stage, x, values)
        return self._packed(values)

    def loss(self, batch: Any, y_pred: Any, *, share: float, training: bool) -> Any:
        """Return the loss of some rows, weighted so that the parts of a batch add up to its loss.

        ``share`` is their fraction of the batch's rows.
        """
        x, y, sample_weight = unpack_batch(batch)
        row_weighted = share == 1 or loss_is_mean(self.model)
        with tf.device(self.devices[-1]):
            loss = self.model.compute_loss(x, y, y_pred, sample_weight, training=training)
            return weigh_loss(loss, share, self.model, 1, row_weighted=row_weighted)

    def gradients(self, batch: Any, share: float) -> tuple[Any, list[Any], Any]:
        """Return loss, gradients of the trainable variables in order, and outputs for some rows.

        ``share`` is their fraction of the batch's rows.
        """
        values: dict[int, Any] = {}
        tapes = [tf.GradientTape() for _ in self._stages]
        for stage, tape in zip(self._stages, tapes, strict=True):
            with tape:
                self._run(stage, batch[0], values, tape)
        y_pred = self._packed(values)
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
        handed: dict[int, Any] = {}  # gradients from later stages, by their input tensor
        for number, stage in reversed(list(enumerate(self._stages))):
            own = [i for i, of in enumerate(self._stage_of_variable) if of == number]
            taken = [key for key in stage.taken if values[key].dtype.is_floating]
            made = [key for key in stage.made if handed.get(key) is not None]
            with tf.device(stage.device):
                of_own, of_taken = tapes[number].gradient(
                    [scaled, *(values[key] for key in made)],
                    ([variables[i] for i in own], [values[key] for key in taken]),
                    output_gradients=[tf.ones_like(scaled), *(handed[key] for key in made)],
                )
            for i, gradient in zip(own, of_own, strict=True):
                gradients[i] = gradient
            for key, gradient in zip(taken, of_taken, strict=True):
                handed[key] = add_gradients(handed.get(key), gradient)
        return loss, gradients, y_pred

    def _run(
        self, stage: _Stage, x: Any, values: dict[int, Any], tape: tf.GradientTape | None = None
    ) -> None:
        """Run a stage for training, recorded by a tape, or for validation."""
        with tf.device(stage.device):
            taken = [values[key] for key in stage.taken]
            if tape is not None:
                tape.watch([each for each in taken if each.dtype.is_floating])
            inputs = x if stage is self._stages[0] else taken
            made = keras.tree.flatten(stage.model(inputs, training=tape is not None))
        values |= dict(zip(stage.made, made, strict=True))

    def _packed(self, values: dict[int, Any]) -> Any:
        return keras.tree.map_structure(lambda tensor: values[id(tensor)], self._outputs)


def _stages(
    model: keras.Model, calls: Sequence[Call], plan: Sequence[int], devices: Sequence[str]
) -> list[_Stage]:
    tensors = {id(t): t for call in calls for t in (*call.inputs, *call.outputs)}
    made_on = {
        id(tensor): stage
        for call, stage in zip(calls, plan, strict=True)
        for tensor in call.outputs
    }
    used = [
        (id(tensor), stage)
        for call, stage in zip(calls, plan, strict=True)
        for tensor in call.inputs
    ]
    final = [id(tensor) for tensor in keras.tree.flatten(_outputs(model))]
    stages = []
    for number, device in enumerate(devices):
        taken = _unique(key for key, stage in used if stage == number and made_on[key] < number)
        needed_later = {key for key, stage in used if stage > number}
        own = [key for key, stage in made_on.items() if stage == number]
        made = [key for key in own if key in needed_later]
        made += _unique(key for key in final if key in own and key not in needed_later)
        inputs = _inputs(model) if number == 0 else [tensors[key] for key in taken]
        # TensorFlow's graph optimizer orders sums by node names, so an automatic name would matter.
        part = keras.Model(inputs, [tensors[key] for key in made], name=f"stage_{number}")
        stages.append(_Stage(part, device, taken, made))
    return stages


def _unique(keys: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(keys))


def _inputs(model: keras.Model) -> Any:
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _outputs(model: keras.Model) -> Any:
    return model.outputs[0] if isinstance(model, keras.Sequential) else model.output


class StageStep:
    """Step of a model that is split into stages, over several replicas.

    The first model replica owns the optimizer, the metrics and all state of a checkpoint. The
    others copy its weights and compute their part of the rows.

    Args:
        workload: The workload of the model.
        copies: Model replicas with their variables on the devices of their stages.
        replicas: Replicas with several devices each.
        devices: Devices of the stages of each replica.
        plan: Stage of each call of a model.
        micro_batches: Pieces into which a replica splits its part of a batch.
    """

    def __init__(
        self,
        workload: Workload,
        copies: Sequence[keras.Model],
        replicas: Replicas,
        devices: Sequence[Sequence[str]],
        plan: Sequence[int],
        micro_batches: int,
    ) -> None:
        self._workload = workload
        self.copies = copies
        self.model = copies[0]
        self.replicas = replicas
        self._devices = devices
        self._plan = plan
        self.micro_batches = micro_batches
        self.has_own_train = has_own_train_step(workload, self.model)
        self.has_own_test = has_own_test_step(self.model)

    def build(self, sample: tuple[Any, ...]) -> None:
        """Cut the models, and create the variables of losses, metrics and optimizer."""
        self._pipelines = [
            StagePipeline(copy, self._plan, devices)
            for copy, devices in zip(self.copies, self._devices, strict=True)
        ]
        _build_optimizer(self.model, self.replicas)
        for copy in self.copies[1:]:
            build_losses(copy, sample, self.replicas)
        build_for_training(self.model, sample, self.replicas)

    def prepare(self, num_rows: int, batch_size: int) -> None:
        """Check that the steps are those of Keras.

        Raises:
            WorkloadError: The workload or the model has its own.
        """
        for own, name in ((self.has_own_train, "train_step"), (self.has_own_test, "test_step")):
            if own:
                raise WorkloadError(
                    f"{type(self._workload).__name__} or its model has a custom {name}, which "
                    "calls the whole model and so cannot run in stages: leave it out, or use kind "
                    "'mirrored'"
                )
        self._tracker = loss_metric(self.model)

    def train(self, replica: int, batch: Any, num_rows: int) -> None:
        """Train on a batch, all replicas and stages of it."""
        total: Any = 0.0
        gradients: list[Any] = [None] * len(self.model.trainable_variables)
        for pipeline, piece, share in self._pieces(batch, num_rows, self.micro_batches):
            loss, more, y_pred = pipeline.gradients(piece, share)
            self._measure(piece, y_pred)
            total = total + loss
            for number, device in enumerate(self._pipelines[0].variable_devices):
                with tf.device(device):
                    gradients[number] = add_gradients(gradients[number], more[number])
        self.model.optimizer.apply(gradients, self.model.trainable_variables)
        self._copy_weights()
        track_loss(self._tracker, total, num_rows, 1)

    def test(self, replica: int, batch: Any, num_rows: int) -> None:
        """Evaluate a batch, all replicas and stages of it."""
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

    def begin(self, *, training: bool) -> None:
        """Reset the metrics; copy weights and statistics to the other replicas."""
        for copy in self.copies:
            copy.reset_metrics()
        if not training:
            return
        self._copy_weights()
        for number, copy in enumerate(self.copies[1:], 1):
            for own, of_first in zip(_state(copy), _state(self.model), strict=True):
                own.assign(of_first.value + _seed_offset(own, number))

    def end(self, *, training: bool) -> None:
        """Merge metrics and moving statistics of the replicas into the first one."""
        if len(self.copies) == 1:
            return
        counted = {metric.name: metric for metric in self.model.metrics}
        for copy in self.copies[1:]:  # these track only the losses of single outputs
            for metric in copy.metrics:
                if metric.name.endswith("_loss"):
                    for own, more in zip(
                        counted[metric.name].variables, metric.variables, strict=True
                    ):
                        own.assign_add(more)
        if training:
            for variable, *more in zip(*map(_state, self.copies), strict=True):
                if tf.as_dtype(variable.dtype).is_floating:  # moving statistics
                    mean = tf.add_n([variable.value, *(each.value for each in more)])
                    for each in (variable, *more):
                        each.assign(mean / len(self.copies))

    def _copy_weights(self) -> None:
        for copy in self.copies[1:]:
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
