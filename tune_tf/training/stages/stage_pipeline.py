"""Forward and backward pass of a model that is split into stages."""

import contextlib
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.training.core.gradients import add_gradients
from tune_tf.training.core.row_weights import loss_is_mean, unpack_batch, weigh_loss
from tune_tf.training.stages.model_graph import Call, calls_of


class _Stage:
    """Calls of one device as a separate model that shares the layers."""

    def __init__(
        self, number: int, inputs: Any, taken: Sequence[Any], made: Sequence[Any], device: str
    ) -> None:
        self.device = device
        self.taken = tuple(id(tensor) for tensor in taken)
        self.made = tuple(id(tensor) for tensor in made)
        # TensorFlow's graph optimizer orders sums by node names, which an automatic name changes.
        self.model = keras.Model(inputs, list(made), name=f"stage_{number}")

    def __call__(self, inputs: Any, *, training: bool) -> list[Any]:
        return list(keras.tree.flatten(self.model(inputs, training=training)))


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
        self._row_weighted: bool | None = None
        self._outputs = _outputs(model)
        self._calls = calls_of(model)  # kept alive: values are keyed by the ids of its tensors
        self._stages = _stages(model, self._calls, plan, self.devices)
        stage_of = {
            id(variable): stage
            for stage, part in enumerate(self._stages)
            for variable in part.model.variables
        }
        self._stage_of_variable = [stage_of[id(v)] for v in model.trainable_variables]

    def device_of(self, variable: int) -> str:
        """Return the device of a trainable variable, given its index."""
        return self.devices[self._stage_of_variable[variable]]

    def predict(self, x: Any, *, training: bool = False) -> Any:
        """Return the model's outputs for some rows."""
        values: dict[int, Any] = {}
        for stage in self._stages:
            self._run(stage, x, values, training=training)
        return self._packed(values)

    def loss(self, batch: Any, y_pred: Any, *, share: float, training: bool) -> Any:
        """Return the loss of some rows, weighted so that the parts of a batch add up to its loss.

        ``share`` is their fraction of the batch's rows.
        """
        x, y, sample_weight = unpack_batch(batch)
        if self._row_weighted is None:
            self._row_weighted = share == 1 or loss_is_mean(self.model)
        with tf.device(self.devices[-1]):
            loss = self.model.compute_loss(x, y, y_pred, sample_weight, training=training)
            return weigh_loss(loss, share, self.model, 1, row_weighted=self._row_weighted)

    def gradients(self, batch: Any, share: float) -> tuple[Any, list[Any], Any]:
        """Return loss, gradients of the trainable variables in order, and outputs for some rows.

        ``share`` is their fraction of the batch's rows.
        """
        values: dict[int, Any] = {}
        tapes = [tf.GradientTape() for _ in self._stages]
        for stage, tape in zip(self._stages, tapes, strict=True):
            with tape:
                self._run(stage, batch[0], values, training=True, tape=tape)
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
        for number in reversed(range(len(self._stages))):
            stage = self._stages[number]
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
        self,
        stage: _Stage,
        x: Any,
        values: dict[int, Any],
        *,
        training: bool,
        tape: tf.GradientTape | None = None,
    ) -> None:
        with tf.device(stage.device):
            taken = [values[key] for key in stage.taken]
            if tape is not None:
                tape.watch([each for each in taken if each.dtype.is_floating])
            first = stage is self._stages[0]
            made = stage(x if first else taken, training=training)
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
    final = [id(tensor) for tensor in keras.tree.flatten(_outputs(model))]
    stages = []
    for number, device in enumerate(devices):
        taken = _in_order(
            id(tensor)
            for call, stage in zip(calls, plan, strict=True)
            if stage == number
            for tensor in call.inputs
            if made_on[id(tensor)] < number
        )
        needed_later = {
            id(tensor)
            for call, stage in zip(calls, plan, strict=True)
            if stage > number
            for tensor in call.inputs
        }
        made = _in_order(
            key for key, stage in made_on.items() if stage == number and key in needed_later
        ) + _in_order(key for key in final if made_on[key] == number and key not in needed_later)
        inputs = _inputs(model) if number == 0 else [tensors[key] for key in taken]
        stages.append(
            _Stage(
                number,
                inputs,
                [tensors[key] for key in taken],
                [tensors[key] for key in made],
                device,
            )
        )
    return stages


def _in_order(keys: Any) -> list[int]:
    return list(dict.fromkeys(keys))


def _inputs(model: keras.Model) -> Any:
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _outputs(model: keras.Model) -> Any:
    return model.outputs[0] if isinstance(model, keras.Sequential) else model.output
