"""Training and validation steps that are exact for any number of replicas.

One replica uses Keras' ``train_step``. With several, Keras is inexact in two common cases: it clips
gradients before it sums them, and it weighs the rows of an uneven last batch unequally. Here every
replica takes its share of the rows without padding, losses are weighted by row counts, and
gradients are averaged before clipping.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Parallelism, Uneven
from tune_tf.training.core.batch_parts import (
    add_gradients,
    loss_is_mean,
    loss_metric,
    relative_share,
    split_rows,
    track_loss,
    unpack_batch,
    weigh_loss,
)
from tune_tf.training.core.build import (
    batch_norms,
    build_for_training,
    build_model,
    warn_of_inexact_norms,
)
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.update import prepare_optimizer
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.workload import Config, Workload


class Step(Protocol):
    """Interface of what a program does with each batch."""

    model: keras.Model
    """Model that holds the trial's state."""
    copies: Sequence[keras.Model]
    """All models that train, ``model`` first."""
    replicas: Replicas
    micro_batches: int
    has_own_train: bool
    """Whether the user replaces Keras' ``train_step``."""
    has_own_test: bool
    """Whether the user replaces Keras' ``test_step``."""

    def build(self, sample: tuple[Any, ...]) -> None:
        """Create all variables of model and optimizer, given a few rows."""

    def prepare(self, num_rows: int, batch_size: int) -> None:
        """Check and prepare the step of a built model."""

    def begin(self, *, training: bool) -> None:
        """Prepare a pass over all rows; called in the graph."""

    def train(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Train on a replica's rows of a global batch of ``num_rows`` rows."""

    def test(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Evaluate a replica's rows of a global batch of ``num_rows`` rows."""

    def end(self, *, training: bool) -> None:
        """Combine the results of a pass over all rows; called in the graph."""


def trains_by_workload(workload: Workload) -> bool:
    """Return whether the workload replaces ``train_step``."""
    return type(workload).train_step is not Workload.train_step or "train_step" in vars(workload)


def has_own_train_step(workload: Workload, model: keras.Model) -> bool:
    """Return whether the workload or the model replaces Keras' ``train_step``."""
    return (
        trains_by_workload(workload)
        or type(model).train_step is not keras.Model.train_step
        or "train_step" in vars(model)
    )


def has_own_test_step(model: keras.Model) -> bool:
    """Return whether the model replaces Keras' ``test_step``."""
    return type(model).test_step is not keras.Model.test_step or "test_step" in vars(model)


class ReplicaStep:
    """Step of a model whose replicas each process a part of the batch.

    A replica processes its rows in ``micro_batches`` pieces, one after another. With ``uneven`` as
    "refuse", all replicas must get equally many rows.
    """

    def __init__(
        self,
        workload: Workload,
        model: keras.Model,
        replicas: Replicas,
        micro_batches: int = 1,
        uneven: Uneven = "split",
    ) -> None:
        self._workload = workload
        self.model = model
        self.copies: Sequence[keras.Model] = (model,)
        self.replicas = replicas
        self.micro_batches = micro_batches
        self._uneven = uneven
        self.has_own_train = has_own_train_step(workload, model)
        self.has_own_test = has_own_test_step(model)
        self._row_weighted = True
        self._tracker: Any = None
        self._unused: set[int] = set()  # variables without a gradient in replicas with rows

    def build(self, sample: tuple[Any, ...]) -> None:
        """Create all variables, and make the optimizer exact for the replicas."""
        build_for_training(self.model, sample, self.replicas)
        prepare_optimizer(self.model, self.replicas)

    def prepare(self, num_rows: int, batch_size: int) -> None:
        """Check the batches and the loss.

        Raises:
            WorkloadError: The replicas cannot train this model on these batches.
        """
        self._check_batches(num_rows, batch_size)
        several = self.replicas.num > 1
        splits_train = (several or self.micro_batches > 1) and not self.has_own_train
        if splits_train or (several and not self.has_own_test):
            self._row_weighted = loss_is_mean(self.model)
            self._tracker = loss_metric(self.model)

    def begin(self, *, training: bool) -> None:
        """Reset the metrics."""
        self.model.reset_metrics()

    def end(self, *, training: bool) -> None:
        """Do nothing: the replicas share their variables."""

    def train(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Train on a replica's rows and update the model's metrics."""
        if self.replicas.num == 1 and (self.has_own_train or self.micro_batches == 1):
            return self._workload.train_step(self.model, batch)
        if not self.has_own_train:
            self._train_pieces(replica, batch, num_rows)
            return None
        logs = self._run_own(self._train_whole, replica, batch, num_rows)
        if not self.replicas.has_weighed_gradients:
            raise WorkloadError(
                f"the train_step of {type(self._workload).__name__} or its model changes weights "
                "without model.optimizer, so the replicas would diverge: call "
                "model.optimizer.apply(gradients, variables), or use one replica"
            )
        return logs

    def test(self, replica: int, batch: Any, num_rows: int) -> Any:
        """Evaluate a replica's rows and update the model's metrics."""
        model, num_replicas = self.model, self.replicas.num
        if num_replicas == 1:
            return model.test_step(batch)
        if self.has_own_test:
            return self._run_own(model.test_step, replica, batch, num_rows)
        x, y, sample_weight = unpack_batch(batch)
        first, last = split_rows(num_rows, replica, num_replicas)
        if first == last:
            track_loss(self._tracker, tf.zeros([]), num_rows, num_replicas)
            return None
        share = relative_share(last - first, num_rows, num_replicas)
        y_pred = model(x, training=False)
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=False)
        loss = weigh_loss(loss, share, model, num_replicas, row_weighted=self._row_weighted)
        track_loss(self._tracker, loss, num_rows, num_replicas)
        model.compute_metrics(x, y, y_pred, sample_weight)
        return None

    def _train_whole(self, batch: Any) -> Any:
        return self._workload.train_step(self.model, batch)

    def _run_own(self, own: Callable[[Any], Any], replica: int, batch: Any, num_rows: int) -> Any:
        """Run a custom step for one device on a replica's rows.

        The custom step's losses are means over a replica's rows; its gradients and logs are
        weighted by rows here.
        """
        num_replicas = self.replicas.num
        first, last = split_rows(num_rows, replica, num_replicas)
        shared = can_share_batch(num_rows, num_replicas)
        share = relative_share(last - first, num_rows, num_replicas) if shared else 1.0
        with self.replicas.as_single_replica(share):
            logs = own(batch)
        if share == 1.0 or not isinstance(logs, Mapping):
            return logs
        return {name: value * share for name, value in logs.items()}

    def _train_pieces(self, replica: int, batch: Any, num_rows: int) -> None:
        """Train on a replica's rows, one micro-batch after another."""
        model, num_replicas = self.model, self.replicas.num
        first, last = split_rows(num_rows, replica, num_replicas)
        # Equal in all replicas, which wait for each other's synchronized statistics.
        num_pieces = min(self.micro_batches, max(1, num_rows // num_replicas))
        loss: Any = 0.0
        gradients: list[Any] = [None] * len(model.trainable_variables)
        for number in range(num_pieces):
            begin, end = split_rows(last - first, number, num_pieces)
            share = relative_share(end - begin, num_rows, num_replicas)
            piece = batch if num_pieces == 1 else _slice_after(gradients, batch, begin, end)
            more_loss, more = self._gradients(piece, share)
            loss = loss + more_loss
            gradients = [add_gradients(a, b) for a, b in zip(gradients, more, strict=True)]
        model.optimizer.apply(gradients, model.trainable_variables)
        track_loss(self._tracker, loss, num_rows, num_replicas)

    def _gradients(self, batch: Any, share: float) -> tuple[Any, list[Any]]:
        """Return loss and gradients of some rows, given their share of the batch."""
        model, num_replicas = self.model, self.replicas.num
        x, y, sample_weight = unpack_batch(batch)
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            if share:
                loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
                loss = weigh_loss(loss, share, model, num_replicas, row_weighted=self._row_weighted)
            else:  # no rows, but other replicas wait for synchronized statistics
                loss = _zero_loss(y_pred)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        if share:
            self._unused.update(i for i, gradient in enumerate(gradients) if gradient is None)
            model.compute_metrics(x, y, y_pred, sample_weight)
            return loss, gradients
        return loss, [
            None if i in self._unused else tf.zeros_like(variable) if gradient is None else gradient
            for i, (variable, gradient) in enumerate(zip(variables, gradients, strict=True))
        ]

    def _check_batches(self, num_rows: int, batch_size: int) -> None:
        num_replicas = self.replicas.num
        if batch_size < num_replicas:
            raise WorkloadError(
                f"the global batch size {batch_size} is smaller than the {num_replicas} replicas: "
                "each needs at least one row; use a larger batch or fewer replicas"
            )
        rest = num_rows % batch_size
        if self._uneven == "refuse" and (batch_size % num_replicas or rest % num_replicas):
            raise WorkloadError(
                f"the global batch size {batch_size} or the {rest} row(s) of the last batch are "
                f'not divisible by the {num_replicas} replicas, and uneven is "refuse": choose '
                'multiples, or use Mirrored(uneven="split"), which weights replicas by rows'
            )
        local = any(not layer.synchronized for layer in batch_norms(self.model))
        if 0 < rest < num_replicas and local:
            raise WorkloadError(
                f"the last batch has {rest} row(s) for {num_replicas} replicas, and "
                "BatchNormalization has no statistics in a replica without rows: use "
                "Mirrored(synchronized_batch_norm=True), or a batch size that leaves more rows"
            )
        if self.micro_batches > 1 and self.has_own_train:
            raise WorkloadError(
                f"micro_batches is {self.micro_batches}, but a custom train_step takes whole "
                "batches: use 1, or a smaller batch size"
            )


class ReplicaBuilder:
    """Builder of models and steps for replicas that share the variables."""

    def __init__(self, workload: Workload, replicas: Replicas, parallelism: Parallelism) -> None:
        self.workload = workload
        self.replicas = replicas
        self._parallelism = parallelism

    def build(self, config: Config, seed: int, rows: DeviceRows) -> keras.Model:
        """Return a trial's fresh model, with warnings where replicas are inexact."""
        model = build_model(self.workload, config, self.replicas, seed, rows.sample[0])
        if self._parallelism.synchronized_batch_norm and self.replicas.num > 1:
            for layer in batch_norms(model):
                layer.synchronized = True
        warn_of_inexact_norms(model, self.replicas.num, self._parallelism.micro_batches)
        return model

    def step(self, model: keras.Model, config: Config, rows: DeviceRows) -> ReplicaStep:
        """Return the step of a model."""
        return ReplicaStep(
            self.workload,
            model,
            self.replicas,
            self._parallelism.micro_batches,
            self._parallelism.uneven,
        )


def can_share_batch(num_rows: int, num_replicas: int) -> bool:
    """Return whether replicas can share a batch in a custom step.

    A custom step may divide by its number of rows. If a replica would have no rows, every replica
    therefore takes the whole batch.
    """
    return num_rows >= num_replicas


def _slice_after(done: list[Any], batch: Any, begin: int, end: int) -> Any:
    """Return rows once earlier gradients are done, so that memory holds one piece only."""
    finished = [g for g in tf.nest.flatten(done, expand_composites=True) if g is not None]
    with tf.control_dependencies(finished):
        return tf.nest.map_structure(lambda a: tf.identity(a[begin:end]), batch)


def _zero_loss(y_pred: Any) -> Any:
    """Return a zero that depends on a prediction without rows."""
    return tf.add_n([tf.cast(tf.reduce_sum(part), tf.float32) for part in tf.nest.flatten(y_pred)])
