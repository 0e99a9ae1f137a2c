"""Loss, gradients and metrics of batches whose rows replicas and pieces share."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tune_tf.training.input.reader import rows_between
from tune_tf.training.replicas.batch_parts import (
    add_gradients,
    fraction_of,
    scale_gradient,
    split_rows,
    unpack_batch,
)
from tune_tf.training.replicas.part_calls import (
    GraphSpan,
    PartCalls,
    refuse_mixed_penalties,
    refuse_random_operations,
)
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.row_means import is_masked, replaces_method, whole_batch_reason
from tune_tf.training.replicas.whole_batch import (
    WholeBatch,
    concatenate,
    differentiate,
    gather,
    split_activations,
    track_loss,
)


class PartedBatches:
    """Training and validation on batches whose rows are shared, with the numbers of one device.

    Where loss and metrics are means or sums over rows, those of the parts are added up. Otherwise,
    and where a replica has no rows, each replica gathers the outputs of all rows, computes loss and
    metrics of the whole batch as one device does, and differentiates the model's call by its own
    rows.

    Args:
        model: The model, whose variables are created later.
        replicas: The replicas, each with a part of the rows.
        micro_batches: Pieces into which a replica splits its rows for training.
        who: What shares a batch, for error messages.
    """

    def __init__(
        self, model: keras.Model, replicas: Replicas, micro_batches: int, who: str
    ) -> None:
        self._model = model
        self._replicas = replicas
        self._micro_batches = micro_batches
        self._who = who
        # By `training`: whether each replica has the metrics of whole batches.
        self._has_whole_metrics = {True: False, False: False}

    @functools.cached_property
    def _reason(self) -> str | None:
        """What of the built model needs the whole batch at once; None if parts of it suffice."""
        return whole_batch_reason(self._model)

    @functools.cached_property
    def _calls(self) -> PartCalls:
        if self._replicas.num > 1:
            refuse_mixed_penalties(self._model, self._who)
        return PartCalls(self._model, self._who)

    def train(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Train on a replica's rows of a batch; return what ``compute_metrics`` returns of it all.

        The rows of a piece follow those of the one before, so memory holds one piece.
        """
        model, replicas = self._model, self._replicas
        parts = self._parts(replica, num_rows)
        # A loss of the whole batch needs all outputs first, and then calls the model once more.
        state = snapshot(model.non_trainable_variables if len(parts) > 1 else ())
        forward = self._forward(batch if len(parts) == 1 else rows_between(batch, *parts[0]))
        whole, loss = None, 0.0
        gradients: list[Any] = [None] * len(model.trainable_variables)
        if not self._adds_up(forward.y_pred, num_rows, training=True):
            whole = self._whole_batch(forward, state, batch, parts, num_rows)
            of_whole = differentiate(model, whole, replicas)
            loss = of_whole.loss
            gradients = [
                g if g is None else scale_gradient(g, 1 / replicas.num) for g in of_whole[2]
            ]
        offset, _ = split_rows(num_rows, replica, replicas.num)
        penalties = []
        for number, (begin, end) in enumerate(parts):
            part = batch if len(parts) == 1 else slice_after(gradients, batch, begin, end)
            if number or (whole and len(parts) > 1):
                forward = self._forward(part)
            fraction = fraction_of(end - begin, num_rows)
            if whole:
                rows = slice(offset + begin, offset + end)
                of_outputs = [g if g is None else g[rows] for g in of_whole.of_outputs]
                penalty, of_part = forward.differentiate(model, of_outputs, fraction)
                penalties += [] if penalty is None else [penalty]
            else:
                part_loss, of_part = self._differentiate(forward, part, fraction)
                loss = loss + part_loss
            gradients = list(map(add_gradients, gradients, of_part))
        model.optimizer.apply(after_all(gradients), model.trainable_variables)
        return self._finish(replica, whole, loss, penalties, num_rows, training=True)

    def test(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Evaluate a replica's rows of a batch; return as :meth:`train` does."""
        model = self._model
        x, y, sample_weight = unpack_batch(batch)
        first, last = split_rows(num_rows, replica, self._replicas.num)
        with GraphSpan() as span:
            y_pred = self._calls(x, training=False)
            penalty = sum_penalties(self._calls.take_penalties())
        fraction = fraction_of(last - first, num_rows)
        penalties = [] if penalty is None else [part_of(penalty, fraction)]
        whole = None
        if self._adds_up(y_pred, num_rows, training=False):
            with self._replicas.as_single_replica(1.0):
                loss = model.compute_loss(x, y, y_pred, sample_weight, training=False)
            loss = part_of(loss, fraction)
            model.compute_metrics(x, y, y_pred, sample_weight)
        else:
            whole = self._gather(batch, *split_activations(y_pred), num_rows, [span])
            loss = whole.loss(model, self._replicas, training=False)
        return self._finish(replica, whole, loss, penalties, num_rows, training=False)

    def _finish(
        self,
        replica: int,
        whole: WholeBatch | None,
        loss: Any,
        penalties: list[Any],
        num_rows: Any,
        *,
        training: bool,
    ) -> Any:
        """Add the loss to its mean, and the ``whole`` batch to the metrics.

        The loss is that of the whole batch, or the part of this replica.
        """
        penalty = sum(penalties)
        if whole is not None:
            loss = loss + self._replicas.sum(penalty) if penalties else loss
            if self._has_whole_metrics[training]:
                return whole.update_metrics(self._model, loss, num_rows)
            if replica == 0:  # metrics of the replicas are added up
                whole.update_metrics(self._model, loss, num_rows)
            return None
        num_replicas = self._replicas.num
        track_loss(self._model, (loss + penalty) * num_replicas, num_rows / num_replicas)
        return None

    def metrics(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Return the metrics of a pass over all rows; called in the graph."""
        if not self._has_whole_metrics[training]:
            return metric_results(self._model)
        results = self._replicas.run(lambda _: metric_results(self._model))
        of_first: dict[str, tf.Tensor] = self._replicas.first_copy(results)
        return of_first

    def _parts(self, replica: int, num_rows: Any) -> list[tuple[Any, Any]]:
        """Return the micro-batches of a replica as rows ``[begin, end)`` among its rows."""
        num_replicas, num_pieces = self._replicas.num, self._micro_batches
        first, last = split_rows(num_rows, replica, num_replicas)
        if isinstance(num_rows, int):
            # Equal in all replicas, which wait for each other's synchronized statistics.
            num_pieces = min(num_pieces, max(1, num_rows // num_replicas))
        return [split_rows(last - first, number, num_pieces) for number in range(num_pieces)]

    def _adds_up(self, y_pred: Any, num_rows: Any, *, training: bool) -> bool:
        """Return whether loss and metrics of a batch are sums of those of its parts."""
        # Keras weighs the losses of single outputs itself.
        by_output = len(keras.tree.flatten(y_pred)) > 1
        adds_up = self._reason is None and not by_output and not is_masked(y_pred)
        self._has_whole_metrics[training] = not adds_up
        return adds_up and not (isinstance(num_rows, int) and num_rows < self._replicas.num)

    def _forward(self, batch: Any) -> "_Forward":
        """Call the model for training with some rows."""
        calls = self._calls
        with tf.GradientTape() as tape, GraphSpan() as span:
            y_pred = calls(unpack_batch(batch)[0], training=True)
            penalty = sum_penalties(calls.take_penalties())
        return _Forward(y_pred, penalty, tape, span)

    def _differentiate(
        self, forward: "_Forward", batch: Any, fraction: Any
    ) -> tuple[Any, list[Any]]:
        """Return loss and gradients of some rows, which are a fraction of the batch."""
        model = self._model
        x, y, sample_weight = unpack_batch(batch)
        with forward.tape:
            with self._replicas.as_single_replica(1.0):
                loss = model.compute_loss(x, y, forward.y_pred, sample_weight, training=True)
            penalty = 0.0 if forward.penalty is None else forward.penalty
            loss = part_of(loss + penalty, fraction)
            scaled = model.optimizer.scale_loss(loss)
        model.compute_metrics(x, y, forward.y_pred, sample_weight)
        return loss, forward.tape.gradient(scaled, model.trainable_variables)

    def _whole_batch(
        self,
        first: "_Forward",
        state: Sequence[tuple[Any, Any]],
        batch: Any,
        parts: Sequence[tuple[Any, Any]],
        num_rows: Any,
    ) -> WholeBatch:
        """Return the whole batch with its outputs, given those of this replica's first part.

        If there are several parts, each is called again for its gradients, so the model then has
        the ``state`` before the first call.
        """
        before, activations = split_activations(first.y_pred)
        passes, outputs = [first], [before]
        for begin, end in parts[1:]:
            passes.append(self._forward(slice_after(outputs, batch, begin, end)))
            outputs.append(split_activations(passes[-1].y_pred)[0])
        spans = [each.span for each in passes]
        if len(parts) > 1:
            for span in spans:
                refuse_random_operations(span, self._who)
            for variable, value in state:
                variable.assign(value)
        return self._gather(batch, concatenate(outputs), activations, num_rows, spans)

    def _gather(
        self,
        batch: Any,
        before: Any,
        activations: Sequence[Any],
        num_rows: Any,
        calls: Sequence[GraphSpan],
    ) -> WholeBatch:
        """Return the rows of all replicas; the inputs only if a method of the user takes them."""
        x, y, sample_weight = unpack_batch(batch)
        methods = ("compute_loss", "compute_metrics")
        takes_x = any(replaces_method(self._model, method) for method in methods)
        rows = (x if takes_x else None, y, sample_weight, before)
        x, y, sample_weight, before = gather(self._replicas, rows, num_rows)
        return WholeBatch(x, y, sample_weight, before, activations, calls, self._who)


class _Forward(NamedTuple):
    """A call of a model for training, with the penalties of its activities, if it has some."""

    y_pred: Any
    penalty: Any
    tape: tf.GradientTape
    span: GraphSpan

    def differentiate(
        self, model: keras.Model, of_outputs: Sequence[Any], fraction: Any
    ) -> tuple[Any, list[Any]]:
        """Return a part's penalty and gradients, given those of the loss by its outputs.

        The part is a ``fraction`` of the batch.
        """
        before, _ = split_activations(self.y_pred)
        pairs = zip(keras.tree.flatten(before), of_outputs, strict=True)
        targets = [(output, gradient) for output, gradient in pairs if gradient is not None]
        penalty = None
        if self.penalty is not None:
            with self.tape:
                penalty = part_of(self.penalty, fraction)
                scaled = model.optimizer.scale_loss(penalty)
            targets.append((scaled, tf.ones_like(scaled)))
        if not targets:
            return penalty, [None] * len(model.trainable_variables)
        outputs, upstream = zip(*targets, strict=True)
        gradients = self.tape.gradient(
            list(outputs), model.trainable_variables, output_gradients=list(upstream)
        )
        return penalty, gradients


def metric_results(model: keras.Model) -> dict[str, tf.Tensor]:
    """Return the metrics of a model by name, as tensors."""
    return tensors_by_name(model.get_metrics_result())


def tensors_by_name(logs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Return logs as tensors."""
    return {name: tf.convert_to_tensor(value) for name, value in flat_logs(logs).items()}


def flat_logs(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return logs with the results of a metric that has several by their own names, as Keras."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= flat_logs(value) if isinstance(value, Mapping) else {name: value}
    return flat


def slice_after(gradients: list[Any], batch: Any, begin: int, end: int) -> Any:
    """Return rows ``[begin, end)`` once gradients of earlier rows are done, to bound memory."""
    flat = tf.nest.flatten(gradients, expand_composites=True)
    with tf.control_dependencies([tensor for tensor in flat if tensor is not None]):
        return tf.nest.map_structure(tf.identity, rows_between(batch, begin, end))


def after_all(gradients: Sequence[Any]) -> list[Any]:
    """Return gradients that are there once all of them are.

    TensorFlow's graph optimizer otherwise lets an update of a weight overtake a call of the model
    that still reads it (seen in 2.21 where a loop calls the model several times a batch).
    """
    flat = tf.nest.flatten(gradients, expand_composites=True)
    with tf.control_dependencies([tensor for tensor in flat if tensor is not None]):
        return [
            g if g is None else tf.nest.map_structure(tf.identity, g, expand_composites=True)
            for g in gradients
        ]


def snapshot(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return variables with their values now, in a graph."""
    return [(variable, tf.identity(variable.value)) for variable in variables]


def sum_penalties(losses: Sequence[Any]) -> Any:
    """Return the sum of penalties as Keras adds them to the loss; None without any."""
    if not losses:
        return None
    return tf.add_n([tf.reduce_sum(tf.cast(loss, keras.config.floatx())) for loss in losses])


def part_of(loss: Any, fraction: Any) -> Any:
    """Return a fraction of a loss; the fraction may be a tensor."""
    return tf.reduce_sum(loss) * (
        tf.cast(fraction, loss.dtype) if tf.is_tensor(fraction) else fraction
    )
