"""Weight updates that do not depend on the number of replicas.

Keras' optimizer clips in every replica before it sums over the replicas, and decides in every
replica whether to apply accumulated gradients and whether to overwrite weights by their averages.
Here gradients are summed first, and these decisions are made once for all replicas.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.scalars import (
    CLIP_THRESHOLDS,
    has_several_optimizers,
    inner_optimizer,
    optimizers_of,
)

Apply = Callable[..., Any]


def prepare_optimizer(model: keras.Model, replicas: Replicas) -> None:
    """Make ``optimizer.apply`` of a built optimizer exact for several replicas.

    If the optimizer does more than sum, each of R replicas gets the gradient G of all rows as G/R,
    because Keras sums once more. Clip thresholds c become c/R, since clip(G/R, c/R) = clip(G, c)/R
    for clipping by value, norm and global norm. Nothing changes for a single replica.

    Raises:
        WorkloadError: It cannot be made exact.
    """
    if replicas.num == 1:
        return
    averages = False
    if has_several_optimizers(model):
        _refuse_inexact(model, replicas.num)
    else:
        averages = _expects_averages(model, replicas.num)
    model.optimizer.apply = _weigh_before(model.optimizer.apply, replicas, averages=averages)


def _expects_averages(model: keras.Model, num_replicas: int) -> bool:
    """Return whether an optimizer does more than sum gradients; prepare it for averages if so."""
    optimizer = inner_optimizer(model)
    clips = [name for name in CLIP_THRESHOLDS if getattr(optimizer, name, None) is not None]
    overwrites = optimizer.use_ema and optimizer.ema_overwrite_frequency
    decides = optimizer.gradient_accumulation_steps or overwrites
    if not (clips or decides or model.optimizer is not optimizer):
        return False
    for name in clips:
        setattr(optimizer, name, getattr(optimizer, name) / num_replicas)
    optimizer.update_step = _deduplicate_sparse(optimizer.update_step, num_replicas)
    if decides:
        synced = _ReplicaSyncedApply(optimizer, model.trainable_variables, num_replicas)
        optimizer.apply = synced.apply
    return True


def _refuse_inexact(model: keras.Model, num_replicas: int) -> None:
    """Refuse a MultiOptimizer that does more than sum gradients."""
    options = {
        name: value
        for optimizer in optimizers_of(model)
        for name in (*CLIP_THRESHOLDS, "gradient_accumulation_steps", "use_ema")
        if (value := getattr(optimizer, name, None))
    }
    if options or model.optimizer is not inner_optimizer(model):
        settings = ", ".join(f"{name}={value}" for name, value in options.items())
        raise WorkloadError(
            f"a MultiOptimizer with {settings or 'LossScaleOptimizer'} cannot be kept exact over "
            f"{num_replicas} replicas: use one replica, or leave that out"
        )


def refuse_other_optimizers(model: keras.Model, who: str) -> None:
    """Refuse a model that has optimizers besides the compiled one; ``who`` cannot train it."""
    others = [
        name
        for name, value in vars(model).items()
        if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer
    ]
    if others:
        raise WorkloadError(
            f"{type(model).__name__} has optimizers besides the compiled one "
            f"({', '.join(others)}), so {who} cannot train exactly: use one replica"
        )


def _weigh_before(apply: Apply, replicas: Replicas, *, averages: bool) -> Apply:
    """Weigh gradients by rows, and perhaps average them before clipping and NaN checks."""

    def apply_weighed(grads: Any, trainable_variables: Any = None) -> Any:
        gradients = replicas.weighted(list(grads))
        if averages:
            gradients = replicas.all_reduce_mean(gradients)
        return apply(gradients, trainable_variables)

    return apply_weighed


def _deduplicate_sparse(update_step: Apply, num_replicas: int) -> Apply:
    """Merge the rows of a sparse gradient that Keras' sum has repeated.

    A dense sum of R times G/R is G. A sparse sum lists every row R times with 1/R of its value, and
    optimizers such as Adam square each listed row.
    """

    def update_once(gradient: Any, variable: Any, learning_rate: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.shape(gradient.indices)[0] // num_replicas
            gradient = tf.IndexedSlices(
                gradient.values[:rows] * tf.cast(num_replicas, gradient.values.dtype),
                gradient.indices[:rows],
                gradient.dense_shape,
            )
        return update_step(gradient, variable, learning_rate)

    return update_once


class _ReplicaSyncedApply:
    """Replacement of ``apply`` in optimizers that accumulate gradients or overwrite weights.

    It follows Keras exactly: schedules count batches, ``iterations`` counts updates, averages
    change with every batch, and constraints come last.
    """

    def __init__(self, optimizer: Any, variables: list[Any], num_replicas: int) -> None:
        self._optimizer = optimizer
        self._apply = optimizer.apply
        self._update_step = optimizer.update_step
        self._variables = list(variables)
        self._num_replicas = num_replicas
        self._steps = optimizer.gradient_accumulation_steps
        self._frequency = optimizer.ema_overwrite_frequency
        self._accumulators = self._slots("gradient_accumulator") if self._steps else []
        self._averages = self._slots("average") if optimizer.use_ema else []
        optimizer.update_step = self._count_update

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Apply the gradients of a batch; called in replica context."""
        variables = list(trainable_variables or self._variables)
        indices = [i for i, gradient in enumerate(grads) if gradient is not None]

        def run(strategy: tf.distribute.Strategy, apply: Apply, present: Any) -> None:
            def apply_in_replica(present: Any) -> None:
                gradients = dict(zip(indices, present, strict=True))
                apply([gradients.get(i) for i in range(len(variables))], variables)

            with self._suspend_decisions():
                strategy.run(apply_in_replica, args=(present,))

        def apply_across_replicas(strategy: tf.distribute.Strategy, present: Any) -> None:
            if self._steps:
                tf.cond(
                    (self._batches() + 1) % self._steps == 0,
                    lambda: run(strategy, self._apply_accumulated, present),
                    lambda: run(strategy, self._accumulate, present),
                )
            else:
                run(strategy, self._apply, present)
            if self._frequency:
                updates = (self._batches() - 1) // (self._steps or 1) + 1
                is_due = updates % self._frequency == 0
                tf.cond(is_due, lambda: self._overwrite(strategy), lambda: None)

        context = tf.distribute.get_replica_context()
        context.merge_call(apply_across_replicas, args=([grads[i] for i in indices],))

    @contextlib.contextmanager
    def _suspend_decisions(self) -> Iterator[None]:
        """Trace without the decisions of Keras."""
        self._optimizer.gradient_accumulation_steps = None
        self._optimizer.ema_overwrite_frequency = None
        try:
            yield
        finally:
            self._optimizer.gradient_accumulation_steps = self._steps
            self._optimizer.ema_overwrite_frequency = self._frequency

    def _count_update(self, gradient: Any, variable: Any, learning_rate: Any) -> Any:
        # Keras skips accumulation here; from now on, `iterations` must count updates again.
        self._optimizer.gradient_accumulation_steps = self._steps
        return self._update_step(gradient, variable, learning_rate)

    def _batches(self) -> tf.Tensor:
        with self._suspend_decisions():
            return tf.convert_to_tensor(self._optimizer.iterations)

    def _accumulate(self, gradients: list[Any], variables: list[Any]) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is not None:
                accumulator = self._slot_of(self._accumulators, variable)
                accumulator.assign(accumulator + self._full_gradient(gradient))
        batches = self._optimizer.iterations
        self._average(is_first=batches < self._steps)
        _constrain(variables)
        batches.assign_add(1)

    def _apply_accumulated(self, gradients: list[Any], variables: list[Any]) -> None:
        parts = self._steps * self._num_replicas
        means = [
            None
            if g is None
            else (self._slot_of(self._accumulators, v) + self._full_gradient(g)) / parts
            for g, v in zip(gradients, variables, strict=True)
        ]
        self._apply(means, variables)
        for accumulator in self._accumulators:
            accumulator.assign(tf.zeros(accumulator.shape, accumulator.dtype))

    def _average(self, *, is_first: tf.Tensor) -> None:
        """Update the averages after a batch without a call of Keras' ``apply``."""
        for average, variable in zip(self._averages, self._variables, strict=False):
            momentum = tf.where(is_first, 0.0, self._optimizer.ema_momentum)
            momentum = tf.cast(momentum, variable.dtype)
            average.assign(momentum * average + (1 - momentum) * variable)

    def _overwrite(self, strategy: tf.distribute.Strategy) -> None:
        self._optimizer.finalize_variable_values(self._variables)
        strategy.run(_constrain, args=(self._variables,))

    def _full_gradient(self, gradient: Any) -> tf.Tensor:
        """Return G from G/R, so that checkpoints do not depend on the number of replicas."""
        return tf.convert_to_tensor(gradient) * self._num_replicas

    def _slot_of(self, slots: list[Any], variable: Any) -> Any:
        return next(slot for slot, of in zip(slots, self._variables, strict=True) if of is variable)

    def _slots(self, name: str) -> list[Any]:
        """Return the optimizer's slots with a name, one per variable."""
        slots = [slot for slot in self._optimizer.variables if slot.name.endswith(f"_{name}")]
        if len(slots) != len(self._variables):
            raise WorkloadError(
                f"{type(self._optimizer).__name__} has {len(slots)} slots named {name} for "
                f"{len(self._variables)} variables, so several replicas cannot train with it "
                "exactly: use one replica, or leave out gradient_accumulation_steps and "
                "ema_overwrite_frequency"
            )
        return slots


def _constrain(variables: list[Any]) -> None:
    for variable in variables:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable))
