"""Loss and metrics of a whole batch, whose outputs were computed in parts.

A loss such as Dice's, a mean over unmasked steps or a function of the user is not a mean of those
of parts. So the outputs of all parts are put together; the loss is differentiated by them, and each
call of the model by its own rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.input.reader import is_sparse_or_ragged
from tune_tf.training.keras_internals import has_keras_logits, keras_mask, set_keras_mask
from tune_tf.training.replicas.part_calls import GraphSpan, refuse_leaks
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.row_means import loss_tracker

_ACTIVATIONS = {"Softmax": keras.activations.softmax, "Sigmoid": keras.activations.sigmoid}
"""By operation: Keras computes crossentropies by their inputs, which never round to 0 or 1."""


class WholeBatch(NamedTuple):
    """All rows of a batch, with the model's outputs for them, which ``calls`` of it computed.

    The outputs ``before`` their ``activations`` are those of :func:`split_activations`. Error
    messages name the parts of the batch as ``who``.
    """

    x: Any
    y: Any
    sample_weight: Any
    before: Any
    activations: Sequence[Any]
    calls: Sequence[GraphSpan]
    who: str

    @property
    def y_pred(self) -> Any:
        """The model's outputs."""
        leaves = keras.tree.flatten(self.before)
        pairs = zip(leaves, self.activations, strict=True)
        outputs = [leaf if change is None else change(leaf) for leaf, change in pairs]
        for output, leaf in zip(outputs, leaves, strict=True):
            _copy_mask(leaf, output)
        return keras.tree.pack_sequence_as(self.before, outputs)

    def loss(self, model: keras.Model, replicas: Replicas, *, training: bool) -> Any:
        """Return the loss, and update the metrics; as on one device in each replica."""
        x, y, sample_weight = self[:3]
        y_pred = self.y_pred
        with replicas.as_single_replica(1.0), GraphSpan() as of_loss:
            loss = model.compute_loss(x, y, y_pred, sample_weight, training=training)
        refuse_leaks(self.calls, of_loss, "a loss", self.who)
        return loss

    def update_metrics(self, model: keras.Model, loss: Any, num_rows: Any) -> Any:
        """Update the metrics, and return what ``compute_metrics`` returns."""
        x, y, sample_weight = self[:3]
        y_pred = self.y_pred
        track_loss(model, loss, num_rows)
        with GraphSpan() as of_metrics:
            logs = model.compute_metrics(x, y, y_pred, sample_weight)
        refuse_leaks(self.calls, of_metrics, "a metric", self.who)
        return logs


def track_loss(model: keras.Model, loss: Any, num_rows: Any) -> None:
    """Add the loss of some rows to the model's mean of the loss."""
    weight = tf.cast(num_rows, tf.float32) if tf.is_tensor(num_rows) else num_rows
    loss_tracker(model).update_state(loss, sample_weight=weight)


class LossGradient(NamedTuple):
    """Loss of a whole batch and its gradients, scaled as the optimizer scales losses.

    Args:
        loss: The loss without penalties of activities, not scaled.
        of_outputs: By output before its activation; None for those that the loss does not depend
            on.
        of_variables: By trainable variable, where the loss depends on it by other ways than the
            outputs, such as penalties of weights.
    """

    loss: Any
    of_outputs: list[Any]
    of_variables: list[Any]


def differentiate(model: keras.Model, batch: WholeBatch, replicas: Replicas) -> LossGradient:
    """Return the loss of a batch for training, with its gradients."""
    outputs = keras.tree.flatten(batch.before)
    numbers = [i for i, each in enumerate(outputs) if each.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch([outputs[i] for i in numbers])
        loss = batch.loss(model, replicas, training=True)
        scaled = model.optimizer.scale_loss(loss)
    found, of_variables = tape.gradient(
        scaled, ([outputs[i] for i in numbers], model.trainable_variables)
    )
    by_number = dict(zip(numbers, found, strict=True))
    return LossGradient(loss, [by_number.get(i) for i in range(len(outputs))], of_variables)


def split_activations(y_pred: Any) -> tuple[Any, list[Any]]:
    """Return outputs before their activations, and these; None for an output without a known one.

    To put parts together would otherwise hide the activation from Keras' crossentropies.

    Raises:
        WorkloadError: An output is a softmax over another axis than the last.
    """
    leaves = keras.tree.flatten(y_pred)
    operations: list[Any] = [getattr(leaf, "op", None) for leaf in leaves]
    activations = [_ACTIVATIONS.get(getattr(each, "type", "")) for each in operations]
    for leaf, activation in zip(leaves, activations, strict=True):
        if activation is None and has_keras_logits(leaf):
            raise WorkloadError(
                "the loss or a metric needs the whole batch at once, and an output that is a "
                "softmax over another axis than the last cannot be put together from its parts as "
                "Keras' crossentropies take it: move that axis to the end, or use one replica and "
                "micro_batches 1"
            )
    before = [
        leaf if activation is None else operation.inputs[0]
        for leaf, operation, activation in zip(leaves, operations, activations, strict=True)
    ]
    for leaf, each in zip(leaves, before, strict=True):
        _copy_mask(leaf, each)
    return keras.tree.pack_sequence_as(y_pred, before), activations


def _copy_mask(source: Any, target: Any) -> None:
    if target is not source and keras_mask(source) is not None:
        set_keras_mask(target, keras_mask(source))


def concatenate(parts: Sequence[Any]) -> Any:
    """Return all rows of nested tensors of parts, with their masks."""

    def join(*leaves: Any) -> Any:
        if leaves[0] is None:
            return None
        _refuse_sparse(leaves[0])
        joined = tf.concat(leaves, 0)
        masks = [keras_mask(leaf) for leaf in leaves]
        if masks[0] is not None:
            set_keras_mask(joined, tf.concat(masks, 0))
        return joined

    return keras.tree.map_structure(join, *parts)


def gather(replicas: Replicas, tensors: Any, num_rows: Any) -> Any:
    """Return all rows of nested tensors of which each replica has some, with their masks."""
    leaves = keras.tree.flatten(tensors)
    for leaf in leaves:
        _refuse_sparse(leaf)
    masks = [None if leaf is None else keras_mask(leaf) for leaf in leaves]
    present = [each for each in (*leaves, *masks) if each is not None]
    whole = iter(replicas.gather(present, num_rows))
    gathered = [None if leaf is None else next(whole) for leaf in leaves]
    for leaf, mask in zip(gathered, masks, strict=True):
        if mask is not None:
            set_keras_mask(leaf, next(whole))
    return keras.tree.pack_sequence_as(tensors, gathered)


def _refuse_sparse(tensor: Any) -> None:
    if is_sparse_or_ragged(tensor):
        raise WorkloadError(
            "the loss or a metric needs the whole batch at once, and a sparse or ragged tensor "
            "cannot be gathered from its parts: make it dense, or use one replica and "
            "micro_batches 1"
        )
