"""Training and validation steps that are exact for any number of replicas.

With several replicas, Keras clips gradients before it sums them, and weighs the rows of an uneven
last batch unequally. Here losses are weighted by rows, and gradients are averaged before clipping.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Parallelism
from tune_tf.training.build import (
    batch_norms,
    build_for_training,
    build_model,
    layers_in,
    warn_of_inexact_norms,
)
from tune_tf.training.epoch import TrialInputs
from tune_tf.training.replicas.batch_parts import (
    can_share_batch,
    fraction_of,
    is_even,
    replica_rows,
)
from tune_tf.training.replicas.parted_batches import (
    PartedBatches,
    flat_logs,
    metric_results,
    tensors_by_name,
)
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.replicas.row_means import compiled_reason, replaces_method
from tune_tf.training.replicas.update import prepare_optimizer, refuse_other_optimizers
from tune_tf.workload import Workload


class Step(abc.ABC):
    """Processing of each batch by a program.

    Args:
        workload: The workload of the trials.
        copies: All models that train; the first holds the trial's state.
        replicas: The replicas that share each batch.
        micro_batches: Pieces into which a replica splits its rows, processed one after another.
    """

    def __init__(
        self,
        workload: Workload,
        copies: Sequence[keras.Model],
        replicas: Replicas,
        micro_batches: int,
    ) -> None:
        self._workload = workload
        self.copies = copies
        self.model = copies[0]
        self.replicas = replicas
        self.micro_batches = micro_batches
        counts = {"replicas": len(copies) * replicas.num, "micro_batches": micro_batches}
        #: What shares a batch, for error messages; empty if batches stay whole.
        self.who = " and ".join(f"{num} {name}" for name, num in counts.items() if num > 1)
        #: Whether the user replaces Keras' ``train_step``.
        self.has_custom_train = trains_by_workload(workload) or replaces_method(
            self.model, "train_step"
        )
        #: Whether the user replaces Keras' ``test_step``.
        self.has_custom_test = replaces_method(self.model, "test_step")

    @abc.abstractmethod
    def build(self, sample: tuple[Any, ...]) -> None:
        """Create all variables of model and optimizer, given a few rows."""

    def check(self, num_rows: int, batch_size: int) -> None:
        """Check that the built model can be trained on these batches, if both numbers are known.

        Unknown numbers are 0.

        Raises:
            WorkloadError: It cannot.
        """
        for layer in layers_in(self.model) if self.who else ():
            if isinstance(layer, keras.layers.RNN) and layer.stateful:
                raise WorkloadError(
                    f"{layer.name} ({type(layer).__name__}) is stateful, so its state is of whole "
                    f"batches, which {self.who} split: use one replica and micro_batches 1, or "
                    "leave out stateful=True"
                )

    @abc.abstractmethod
    def train(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Train on a replica's rows of a global batch of ``num_rows`` rows, a number or tensor."""

    @abc.abstractmethod
    def test(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Evaluate a replica's rows of a global batch of ``num_rows`` rows, a number or tensor."""

    def begin(self, *, training: bool) -> None:
        """Reset the metrics before a pass over all rows; called in the graph."""
        for copy in self.copies:
            # In replicas, each of which may then keep the state of whole batches.
            self.replicas.run(lambda _, copy=copy: copy.reset_metrics())

    def end(self, *, training: bool) -> None:  # noqa: B027  replicas share their variables
        """Combine the results of a pass over all rows; called in the graph."""

    def is_custom(self, *, training: bool) -> bool:
        """Return whether the user replaces Keras' step."""
        return self.has_custom_train if training else self.has_custom_test

    def has_logs(self, *, training: bool) -> bool:
        """Return whether a step's result may be more than the metrics of the pass so far."""
        return self.is_custom(training=training) or replaces_method(self.model, "compute_metrics")

    def logs(self, result: Any, *, training: bool) -> dict[str, tf.Tensor]:
        """Return the metrics after the last batch, with its step's result, as ``fit`` logs them."""
        metrics = self._metrics(training=training)
        if isinstance(result, Mapping) and set(flat_logs(result)) != set(metrics):
            is_custom = self.is_custom(training=training)
            of_all = self.replicas.mean if is_custom else self.replicas.first_copy
            metrics = of_all(dict(result))
        if training and self.has_custom_train:
            self.check_logs(metrics if isinstance(result, Mapping) else result)
        return tensors_by_name(metrics)

    def _metrics(self, *, training: bool) -> dict[str, tf.Tensor]:
        """Return the metrics of a pass."""
        return metric_results(self.model)

    def check_logs(self, logs: Any) -> None:
        """Refuse results of a custom training step without a loss."""
        if not isinstance(logs, Mapping) or "loss" not in logs:
            names = ", ".join(logs) if isinstance(logs, Mapping) else repr(logs)
            raise WorkloadError(
                f"the train_step of {type(self._workload).__name__} or its model returned {names} "
                "but no loss: return metrics by name with the loss of the batch as 'loss', for "
                "example {'loss': loss}"
            )


def trains_by_workload(workload: Workload) -> bool:
    """Return whether the workload replaces ``train_step``."""
    return type(workload).train_step is not Workload.train_step or "train_step" in vars(workload)


class ReplicaStep(Step):
    """Step of a model whose replicas each process a part of the batch."""

    def __init__(
        self, workload: Workload, model: keras.Model, replicas: Replicas, parallelism: Parallelism
    ) -> None:
        super().__init__(workload, (model,), replicas, parallelism.micro_batches)
        self._batches = PartedBatches(model, replicas, self.micro_batches, self.who)

    def build(self, sample: tuple[Any, ...]) -> None:
        """Create all variables, and make the optimizer exact for the replicas."""
        if self.replicas.num > 1:
            refuse_other_optimizers(self.model, self.who)
            if not replaces_method(self.model, "call"):
                raise WorkloadError(
                    f"{type(self.model).__name__} has no call, by which {self.who} create its "
                    "variables: write one, or use one replica"
                )
        train_step = partial(self._workload.train_step, self.model)
        build_for_training(self.model, sample, self.replicas, train_step)
        prepare_optimizer(self.model, self.replicas)

    def check(self, num_rows: int, batch_size: int) -> None:
        """Refuse batches and losses that the replicas cannot train on exactly."""
        super().check(num_rows, batch_size)
        num_replicas = self.replicas.num
        if num_rows and batch_size < num_replicas:
            raise WorkloadError(
                f"the global batch size {batch_size} is smaller than the {num_replicas} replicas: "
                "each needs at least one row; use a larger batch or fewer replicas"
            )
        for count in (batch_size, num_rows % batch_size) if num_rows else ():
            self._check_batch(count or batch_size)
        if self.micro_batches > 1 and self.has_custom_train:
            raise WorkloadError(
                f"micro_batches is {self.micro_batches}, but a custom train_step takes whole "
                "batches: use 1, or a smaller batch size"
            )
        is_custom = self.has_custom_train or self.has_custom_test
        reason = compiled_reason(self.model) if num_replicas > 1 and is_custom else None
        if reason:
            method = "train_step" if self.has_custom_train else "test_step"
            raise WorkloadError(
                f"{reason} may need the whole batch, but a custom {method} gets only the rows of "
                f"one of {num_replicas} replicas: use one replica, or override compute_loss and "
                f"compute_metrics, which get it all, in place of {method}"
            )

    def train(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Train on a replica's rows and update the model's metrics."""
        self._check_batch(num_rows)
        if self.replicas.num == 1 and (self.has_custom_train or self.micro_batches == 1):
            return self._workload.train_step(self.model, batch)
        if not self.has_custom_train:
            return self._batches.train(replica, batch, num_rows)
        train_step = partial(self._workload.train_step, self.model)
        logs = self._run_custom(train_step, replica, batch, num_rows)
        if not self.replicas.has_weighed_gradients:
            raise WorkloadError(
                f"the train_step of {type(self._workload).__name__} or its model changes weights "
                "without model.optimizer, so the replicas would diverge: call "
                "model.optimizer.apply(gradients, variables), or use one replica"
            )
        return logs

    def test(self, replica: int, batch: Any, num_rows: Any) -> Any:
        """Evaluate a replica's rows and update the model's metrics."""
        model, num_replicas = self.model, self.replicas.num
        if num_replicas == 1:
            return model.test_step(batch)
        if self.has_custom_test:
            return self._run_custom(model.test_step, replica, batch, num_rows)
        return self._batches.test(replica, batch, num_rows)

    def _metrics(self, *, training: bool) -> dict[str, tf.Tensor]:
        return self._batches.metrics(training=training)

    def _check_batch(self, num_rows: Any) -> None:
        """Check a batch, in the graph if its number of rows is known only there."""
        num_replicas = self.replicas.num
        names = [layer.name for layer in batch_norms(self.model) if not layer.synchronized]
        if num_replicas == 1 or not (names or self.has_custom_train):
            return
        batch = f"a batch of {num_rows} row(s)" if isinstance(num_rows, int) else "a batch"
        text = (
            f"{batch} has fewer rows than the {num_replicas} replicas, and "
            f"{'a custom train_step' if self.has_custom_train else names[0]} needs a row in each: "
            "use another batch size, or in a data set drop_remainder=True"
        )
        if not self.has_custom_train:
            text += ", or Mirrored(synchronized_batch_norm=True)"
        if tf.is_tensor(num_rows):
            tf.debugging.Assert(num_rows >= num_replicas, [text])
        elif num_rows < num_replicas:
            raise WorkloadError(text)

    def _run_custom(
        self, custom: Callable[[Any], Any], replica: int, batch: Any, num_rows: Any
    ) -> Any:
        """Run a custom step, whose losses are means, and weigh its gradients and logs by rows."""
        num_replicas = self.replicas.num
        first, last = replica_rows(num_rows, replica, num_replicas, whole=True)
        share = fraction_of((last - first) * num_replicas, num_rows)  # 1 if even
        shared = can_share_batch(num_rows, num_replicas)
        share = share if shared is True else 1.0 if shared is False else tf.where(shared, share, 1)
        with self.replicas.as_single_replica(share):
            logs = custom(batch)
        if is_even(share) or not isinstance(logs, Mapping):
            return logs
        return {name: value * share for name, value in logs.items()}


class ReplicaBuilder:
    """Builder of models, and of steps to train them on replicas that share the variables."""

    def __init__(self, workload: Workload, replicas: Replicas, parallelism: Parallelism) -> None:
        self.workload = workload
        self.replicas = replicas
        self._parallelism = parallelism

    def build(self, inputs: TrialInputs) -> keras.Model:
        """Return a trial's fresh model, with warnings where replicas are inexact."""
        config, rows, seed = inputs
        num_replicas, parallelism = self.replicas.num, self._parallelism
        model = build_model(self.workload, config, self.replicas, seed, rows.sample[0])
        if parallelism.synchronized_batch_norm and num_replicas > 1:
            for layer in batch_norms(model):
                layer.synchronized = True
        warn_of_inexact_norms(model, num_replicas, parallelism.micro_batches)
        return model

    def step(self, model: keras.Model, inputs: TrialInputs) -> Step:
        """Return a step for the model that was built last."""
        return ReplicaStep(self.workload, model, self.replicas, self._parallelism)
