"""One update of the weights that is the same however many replicas agree on it.

Keras' optimizer runs in every replica. There it clips before it sums over the replicas, and it
decides there, too, whether to apply what it has accumulated and whether to overwrite the weights
by their averages, which TensorFlow refuses around a sum. So an optimizer of several replicas is
prepared here: gradients are summed first, and the decisions are made once for all replicas.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import (
    CLIP_THRESHOLDS,
    has_several_optimizers,
    inner_optimizer,
    optimizers_of,
)

Apply = Callable[..., Any]


def prepare_optimizer(model: keras.Model, replicas: Replicas) -> None:
    """Make ``optimizer.apply``, whoever calls it in a replica, exact for all replicas.

    Where the optimizer does more than add up, the gradient G of all rows arrives as G/R in each of
    R replicas, because Keras sums once more. Clip thresholds become c/R, as clip(G/R, c/R) =
    clip(G, c)/R for clipping by value, norm and global norm alike.

    Args:
        model: With a built optimizer.
        replicas: What it trains on; for a single one nothing changes.

    Raises:
        WorkloadError: The model has more optimizers than the one it was compiled with.
    """
    if replicas.num == 1:
        return
    refuse_other_optimizers(model, f"{replicas.num} replicas")
    if has_several_optimizers(model):
        _refuse_inexact(model, replicas.num)
        model.optimizer.apply = _weighted_first(model.optimizer.apply, replicas)
        return
    optimizer = inner_optimizer(model)
    found: dict[str, Any] = {name: getattr(optimizer, name, None) for name in CLIP_THRESHOLDS}
    clips = {name: threshold for name, threshold in found.items() if threshold is not None}
    overwrites = optimizer.use_ema and optimizer.ema_overwrite_frequency
    decides = optimizer.gradient_accumulation_steps or overwrites
    scales_loss = model.optimizer is not optimizer
    if not (clips or decides or scales_loss):
        model.optimizer.apply = _weighted_first(model.optimizer.apply, replicas)
        return  # Keras' own sum is all that there is
    for name, threshold in clips.items():
        setattr(optimizer, name, threshold / replicas.num)
    optimizer.update_step = _once_for_sparse(optimizer.update_step, replicas.num)
    if decides:
        optimizer.apply = _Decided(optimizer, model.trainable_variables, replicas.num).apply
    summed = _summed_first(model.optimizer.apply, replicas)
    model.optimizer.apply = _weighted_first(summed, replicas)


def _refuse_inexact(model: keras.Model, num_replicas: int) -> None:
    """Refuse a MultiOptimizer that does more than add up what the replicas give."""
    does = {
        name: value
        for optimizer in optimizers_of(model)
        for name in (*CLIP_THRESHOLDS, "gradient_accumulation_steps", "use_ema")
        if (value := getattr(optimizer, name, None))
    }
    if does or model.optimizer is not inner_optimizer(model):
        settings = ", ".join(f"{name}={value}" for name, value in does.items())
        raise WorkloadError(
            f"a MultiOptimizer with {settings or 'LossScaleOptimizer'} cannot be kept exact over "
            f"{num_replicas} replicas: use one replica, or leave that out"
        )


def refuse_other_optimizers(model: keras.Model, who: str) -> None:
    """Refuse a model that is trained by more optimizers than the one it was compiled with.

    Args:
        model: Compiled.
        who: Those that cannot train it.

    Raises:
        WorkloadError: Names the others.
    """
    others = [
        name
        for name, value in vars(model).items()
        if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer
    ]
    if others:
        raise WorkloadError(
            f"{type(model).__name__} has optimizers of its own ({', '.join(others)}) beside the "
            f"one it was compiled with, which {who} cannot train with exactly: use one replica"
        )


def _weighted_first(apply: Apply, replicas: Replicas) -> Apply:
    """Weigh the gradients of code that is written as for one device by its rows."""

    def apply_weighted(grads: Any, trainable_variables: Any = None) -> Any:
        return apply(replicas.weighted(list(grads)), trainable_variables)

    return apply_weighted


def _summed_first(apply: Apply, replicas: Replicas) -> Apply:
    """Sum before anything is clipped, and before anyone asks whether all numbers are finite."""

    def apply_summed(grads: Any, trainable_variables: Any = None) -> Any:
        return apply(replicas.all_reduce_mean(grads), trainable_variables)

    return apply_summed


def _once_for_sparse(update_step: Apply, num_replicas: int) -> Apply:
    """Undo that Keras' sum repeats the rows of a sparse gradient once for each replica.

    A dense sum of R times G/R is G. A sparse one lists every row R times, each with its R-th part,
    and optimizers such as Adam square the rows one by one.
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


class _Decided:
    """``apply`` of an optimizer that accumulates gradients or overwrites weights by averages.

    Both follow Keras to the letter: schedules count batches, but ``iterations`` counts updates;
    averages move at every batch, and constraints come last.

    Args:
        optimizer: Built. It decides nothing by itself while this runs.
        variables: What it was built for, in order.
        num_replicas: Copies of the model.
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
        optimizer.update_step = self._counting_updates

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Take the gradients of a batch, in replica context."""
        variables = list(trainable_variables or self._variables)
        there = [i for i, gradient in enumerate(grads) if gradient is not None]

        def in_replicas(strategy: tf.distribute.Strategy, do: Apply, present: Any) -> None:
            def in_replica(present: Any) -> None:
                gradients = dict(zip(there, present, strict=True))
                do([gradients.get(i) for i in range(len(variables))], variables)

            with self._deciding():
                strategy.run(in_replica, args=(present,))

        def across(strategy: tf.distribute.Strategy, present: Any) -> None:
            if self._steps:
                tf.cond(
                    (self._batches() + 1) % self._steps == 0,
                    lambda: in_replicas(strategy, self._apply_accumulated, present),
                    lambda: in_replicas(strategy, self._accumulate, present),
                )
            else:
                in_replicas(strategy, self._apply, present)
            if self._frequency:
                updates = (self._batches() - 1) // (self._steps or 1) + 1
                tf.cond(
                    updates % self._frequency == 0,
                    lambda: self._overwrite(strategy),
                    lambda: None,
                )

        context = tf.distribute.get_replica_context()
        context.merge_call(across, args=([grads[i] for i in there],))

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[None]:
        """Keep Keras from deciding, for what is traced meanwhile."""
        self._optimizer.gradient_accumulation_steps = None
        self._optimizer.ema_overwrite_frequency = None
        try:
            yield
        finally:
            self._optimizer.gradient_accumulation_steps = self._steps
            self._optimizer.ema_overwrite_frequency = self._frequency

    def _counting_updates(self, gradient: Any, variable: Any, learning_rate: Any) -> Any:
        # Once Keras has found that it should not accumulate, `iterations` must count updates again.
        self._optimizer.gradient_accumulation_steps = self._steps
        return self._update_step(gradient, variable, learning_rate)

    def _batches(self) -> tf.Tensor:
        """Return the number of batches so far."""
        with self._deciding():
            return tf.convert_to_tensor(self._optimizer.iterations)

    def _accumulate(self, gradients: list[Any], variables: list[Any]) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is not None:
                accumulator = self._of(self._accumulators, variable)
                accumulator.assign(accumulator + self._whole(gradient))
        batches = self._optimizer.iterations
        self._average(is_first=batches < self._steps)
        _constrain(variables)
        batches.assign_add(1)

    def _apply_accumulated(self, gradients: list[Any], variables: list[Any]) -> None:
        parts = self._steps * self._num_replicas
        means = [
            None if g is None else (self._of(self._accumulators, v) + self._whole(g)) / parts
            for g, v in zip(gradients, variables, strict=True)
        ]
        self._apply(means, variables)
        for accumulator in self._accumulators:
            accumulator.assign(tf.zeros(accumulator.shape, accumulator.dtype))

    def _average(self, *, is_first: tf.Tensor) -> None:
        """Move the averages after a batch that Keras' own ``apply`` does not see."""
        for average, variable in zip(self._averages, self._variables, strict=False):
            momentum = tf.where(is_first, 0.0, self._optimizer.ema_momentum)
            momentum = tf.cast(momentum, variable.dtype)
            average.assign(momentum * average + (1 - momentum) * variable)

    def _overwrite(self, strategy: tf.distribute.Strategy) -> None:
        self._optimizer.finalize_variable_values(self._variables)
        strategy.run(_constrain, args=(self._variables,))

    def _whole(self, gradient: Any) -> tf.Tensor:
        """Return G of G/R, so that a checkpoint means the same with any number of replicas."""
        return tf.convert_to_tensor(gradient) * self._num_replicas

    def _of(self, slots: list[Any], variable: Any) -> Any:
        return next(slot for slot, of in zip(slots, self._variables, strict=True) if of is variable)

    def _slots(self, name: str) -> list[Any]:
        """Return the optimizer's slots of a name, one a variable."""
        found = [slot for slot in self._optimizer.variables if slot.name.endswith(f"_{name}")]
        if len(found) != len(self._variables):
            raise WorkloadError(
                f"{type(self._optimizer).__name__} has {len(found)} slots called {name} for "
                f"{len(self._variables)} variables, so several replicas cannot train with it "
                "exactly: use one replica, or leave out gradient_accumulation_steps and "
                "ema_overwrite_frequency"
            )
        return found


def _constrain(variables: list[Any]) -> None:
    for variable in variables:
        if variable.constraint is not None:
            variable.assign(variable.constraint(variable))
