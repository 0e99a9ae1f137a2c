"""Training and validation steps of a model that is split into stages."""

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.batch_parts import add_gradients, split_rows, unpack_batch
from tune_tf.training.core.build import build_for_training
from tune_tf.training.core.part_calls import GraphSpan, PartCalls, refuse_random_operations
from tune_tf.training.core.parted_batches import after_all, slice_after, snapshot, sum_penalties
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import inner_optimizer
from tune_tf.training.core.step import Step
from tune_tf.training.core.whole_batch import WholeBatch, concatenate, differentiate
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

    def forward(self, x: Any, *, training: bool) -> "StagePass":
        """Call the stages with some rows."""
        values: dict[int, Any] = {}
        tapes = [tf.GradientTape() for _ in self._stages] if training else []
        for number, stage in enumerate(self._stages):
            with tapes[number] if training else contextlib.nullcontext() as tape:
                self._run(stage, x, values, tape)
        y_pred = keras.tree.map_structure(lambda tensor: values[id(tensor)], self._outputs)
        return StagePass(y_pred, values, tapes)

    def gradients(self, of: "StagePass", of_outputs: Sequence[Any], penalty: Any) -> list[Any]:
        """Return the gradients of the trainable variables, in order.

        They are those of the ``penalty``, a number or None, and of the loss, whose gradients by the
        outputs are given.
        """
        values, variables = of.values, self.model.trainable_variables
        gradients: list[Any] = [None] * len(variables)
        upstream: dict[int, Any] = {}  # gradients from later stages, by their input tensor
        for tensor, gradient in zip(keras.tree.flatten(self._outputs), of_outputs, strict=True):
            upstream[id(tensor)] = add_gradients(upstream.get(id(tensor)), gradient)
        for number, stage in reversed(list(enumerate(self._stages))):
            indices = [i for i, each in enumerate(self._stage_numbers) if each == number]
            inputs = [key for key in stage.inputs if values[key].dtype.is_floating]
            outputs = [key for key in stage.outputs if upstream.get(key) is not None]
            targets = [values[key] for key in outputs]
            given = [upstream[key] for key in outputs]
            if penalty is not None:
                targets.append(penalty)
                given.append(tf.ones_like(penalty))
            if not targets:
                continue
            with tf.device(stage.device):
                variable_gradients, input_gradients = of.tapes[number].gradient(
                    targets,
                    ([variables[i] for i in indices], [values[key] for key in inputs]),
                    output_gradients=given,
                )
            for i, gradient in zip(indices, variable_gradients, strict=True):
                gradients[i] = gradient
            for key, gradient in zip(inputs, input_gradients, strict=True):
                upstream[key] = add_gradients(upstream.get(key), gradient)
        return gradients

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


class StagePass(NamedTuple):
    """A call of all stages.

    Args:
        y_pred: The outputs.
        values: Values of symbolic tensors by ``id``.
        tapes: One a stage, for training.
    """

    y_pred: Any
    values: dict[int, Any]
    tapes: Sequence[tf.GradientTape]


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
    others copy its weights and compute their part of the rows. All outputs are computed before the
    loss, which is that of the whole batch.

    Args:
        workload: The workload of the trials.
        pipelines: The model replicas.
        replicas: Their devices.
        micro_batches: Pieces into which a replica splits its rows.
        saves_memory: Whether the outputs of a micro-batch are computed twice, for the loss and for
            its gradient, so that memory holds the activations of one. Otherwise, all are held, and
            pipelined.
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
        build_for_training(self.model, sample, self.replicas)
        self._prepare_logs(sample)

    @functools.cached_property
    def _calls(self) -> list[PartCalls]:
        several = self.micro_batches > 1
        return [PartCalls(copy, self.who, several=several) for copy in self.copies]

    def check(self, num_rows: int, batch_size: int) -> None:
        """Refuse steps that are not those of Keras."""
        super().check(num_rows, batch_size)
        if self.has_custom_train or self.has_custom_test:
            name = "train_step" if self.has_custom_train else "test_step"
            raise WorkloadError(
                f"{type(self._workload).__name__} or its model has a custom {name}, which calls "
                "the whole model and so cannot run in stages: leave it out, or use kind 'mirrored'"
            )

    def train(self, replica: int, batch: Any, num_rows: int) -> None:
        """Train on a batch, all replicas and stages of it."""
        model, parts = self.model, self._parts(num_rows, self.micro_batches)
        again = self._saves_memory and len(parts) > 1
        state = snapshot(v for copy in self.copies for v in _state(copy)) if again else []
        passes: list[_PartPass] = []
        for part in parts:
            before = [each.y_pred for each in passes] if again else []
            passes.append(self._forward(part, slice_after(before, batch, part.low, part.high)))
        for each in passes if again else ():
            refuse_random_operations(each.span, self.who)
        for variable, value in state:
            variable.assign(value)
        whole = self._whole(batch, passes)
        with tf.device(self._pipelines[0].devices[-1]):
            found = differentiate(model, whole, self.replicas)
        loss, gradients = found.loss, found.of_variables
        devices = self._pipelines[0].variable_devices
        for part, first in zip(parts, passes, strict=True):
            each = first
            if again:
                each = self._forward(part, slice_after(gradients, batch, part.low, part.high))
            of_outputs = [g if g is None else g[part.low : part.high] for g in found.of_outputs]
            penalty, scaled = each.penalty(model, (part.high - part.low) / num_rows)
            loss = loss if penalty is None else loss + penalty
            pipeline = self._pipelines[part.replica]
            gradients = _add_on(
                devices, gradients, pipeline.gradients(each.stages, of_outputs, scaled)
            )
        model.optimizer.apply(after_all(gradients), model.trainable_variables)
        self._copy_weights()
        self._update_metrics(whole, loss, num_rows)

    def test(self, replica: int, batch: Any, num_rows: int) -> None:
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
        self._update_metrics(whole, loss, num_rows)

    def _forward(self, part: "_Part", batch: Any, *, training: bool = True) -> "_PartPass":
        """Call a replica's stages with a part of a batch."""
        calls, pipeline = self._calls[part.replica], self._pipelines[part.replica]

        def call() -> StagePass:
            return pipeline.forward(unpack_batch(batch)[0], training=training)

        with GraphSpan() as span:
            stages = call() if part.is_whole else calls.watch(call)
            with contextlib.ExitStack() as recording, tf.device(pipeline.devices[-1]):
                # Each tape has recorded only its own stage, so it finds the penalties of that.
                for tape in stages.tapes:
                    recording.enter_context(tape)
                penalties = sum_penalties(calls.take_penalties())
        return _PartPass(stages, penalties, span)

    def _whole(self, batch: Any, passes: "Sequence[_PartPass]") -> WholeBatch:
        with tf.device(self._pipelines[0].devices[-1]):
            y_pred = concatenate([each.y_pred for each in passes])
        return WholeBatch(*unpack_batch(batch), y_pred, [each.span for each in passes], self.who)

    def _update_metrics(self, whole: WholeBatch, loss: Any, num_rows: int) -> None:
        with tf.device(self._pipelines[0].devices[-1]):
            logs = whole.update_metrics(self.model, loss, num_rows)
        self._record(logs)

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
                variable.assign(source.value + _seed_offset(variable, number))

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

    stages: StagePass
    penalties: Any
    span: GraphSpan

    @property
    def y_pred(self) -> Any:
        return self.stages.y_pred

    def penalty(self, model: keras.Model, fraction: float) -> tuple[Any, Any]:
        """Return the penalty in the loss of a batch, and as the optimizer scales it; or None.

        The part is a ``fraction`` of the batch.
        """
        if self.penalties is None:
            return None, None
        with contextlib.ExitStack() as recording:
            for tape in self.stages.tapes:
                recording.enter_context(tape)
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
