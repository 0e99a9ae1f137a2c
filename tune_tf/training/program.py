"""A traced epoch, its model, and how it serves one trial after another."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Uneven
from tune_tf.training.batch_norm import batch_norms
from tune_tf.training.build import build_for_training
from tune_tf.training.carried import CarriedFloat
from tune_tf.training.per_example import PerExample
from tune_tf.training.reader import Reader, ResidentReader, StreamReader
from tune_tf.training.replicas import Replicas
from tune_tf.training.row_weights import split
from tune_tf.training.scalars import (
    CLIP_THRESHOLDS,
    Scalar,
    learning_rate,
    set_learning_rate,
)
from tune_tf.training.step import (
    Step,
    has_own_test_step,
    has_own_train_step,
    is_shared,
    test_step,
    train_step,
)
from tune_tf.training.update import prepare_optimizer
from tune_tf.workload import Workload

Metrics = dict[str, Any]

_RowStep = Callable[[int, Any, tf.Tensor, int], Any]
"""A step that is told, before the number of rows of the global batch, those of its own rows."""


class Program:
    """One epoch, training and validation, as one graph call.

    The first trial's model becomes the program's; later trials of the same structure are copied
    into it (:meth:`take_over`), which costs no trace.

    Args:
        workload: What the trial trains.
        model: Compiled, with the first trial's weights.
        replicas: What it trains on.
        sample: A few rows ``(x, y[, sample_weight])``, as the model sees them, to create variables
            by.
        num_rows: Rows of the training set.
        num_validation_rows: Rows of the validation set; 0 for none.
        global_batch_size: Rows of one gradient update, and of one validation batch.
        scalars: The model's scalars to carry; none for a program that serves one trial only.
        micro_batches: Pieces in which a replica takes its part of a batch.
        uneven: Whether a batch that does not divide by the replicas is split or refused.
        per_example: What is computed of each row before a step; None for nothing.
        streamed: Whether batches come from an iterator, which XLA cannot take them from.

    Raises:
        WorkloadError: The replicas cannot train this model on these batches.
    """

    def __init__(
        self,
        workload: Workload,
        model: keras.Model,
        replicas: Replicas,
        *,
        sample: tuple[Any, ...],
        num_rows: int,
        num_validation_rows: int,
        global_batch_size: int,
        scalars: list[Scalar],
        micro_batches: int = 1,
        uneven: Uneven = "split",
        per_example: PerExample | None = None,
        streamed: bool = False,
    ) -> None:
        self._per_example = per_example
        self._workload = workload
        self.model = model
        self.replicas = replicas
        self._num_rows = num_rows
        self._num_validation_rows = num_validation_rows
        self._batch_size = global_batch_size
        build_for_training(model, sample, replicas)
        prepare_optimizer(model, replicas)
        self._initial_optimizer = [_initial(v.numpy()) for v in model.optimizer.variables]
        self._carried = self._carry(scalars)
        self._own_train_step = has_own_train_step(workload, model)
        self._own_test_step = has_own_test_step(model)
        self._check_batches(micro_batches, uneven)
        self._train, self._test = self._steps(micro_batches)
        jit = bool(model.jit_compile) and not replicas.has_several_devices and not streamed
        # Keras weighs the losses of several outputs by rows only where it sees their number.
        by_output = any(metric.name.endswith("_loss") for metric in model.metrics)
        self._needs_static_shapes = (
            jit or replicas.has_several_devices or by_output or micro_batches > 1
        )
        self._jit = jit
        with tf.device("CPU:0"):
            self._waited_s = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._epoch = tf.function(self._run_epoch, jit_compile=jit, autograph=False)
        self._validation = tf.function(self._run_validation, jit_compile=jit, autograph=False)

    def epoch(
        self,
        train: Any,
        validation: Any,
        order: "np.ndarray[Any, Any] | None",
        seeds: "np.ndarray[Any, Any] | None" = None,
    ) -> Metrics:
        """Train on every row once in the given order, then validate.

        Args:
            train: Placed training rows ``(x, y[, sample_weight])``, or an iterator of their
                batches as :class:`~tune_tf.training.stream.Stream` gives it.
            validation: Validation rows in either form, or None.
            order: Row numbers, int32, shape ``[num_rows]``; None where batches have their order.
            seeds: Of what is computed of each row, as :func:`~tune_tf.training.seeds.example_seeds`
                gives them; None where nothing is.

        Returns:
            Metrics by Keras' names, those of validation behind ``val_``; scalars as floats.
        """
        self._waited_s.assign(0.0)
        logs = self._epoch(train, validation, order, seeds)
        return plain(logs)

    def validate(self, validation: Any, seeds: "np.ndarray[Any, Any] | None" = None) -> Metrics:
        """Validate alone; return metrics as :meth:`epoch` does.

        Args:
            validation: Placed validation rows.
            seeds: As for :meth:`epoch`.
        """
        logs = self._validation(validation, seeds)
        return plain(logs)

    def take_over(self, fresh: keras.Model, scalars: list[Scalar]) -> None:
        """Become the trial of a fresh model of the same structure, in every variable."""
        for variable, new in zip(self.model.variables, fresh.variables, strict=True):
            variable.assign(new.value if self.replicas.num == 1 else new.numpy())
        for variable, value in zip(
            self.model.optimizer.variables, self._initial_optimizer, strict=True
        ):
            variable.assign(np.zeros(variable.shape) if value is None else value)
        rate = learning_rate(fresh)
        if rate is not None:
            set_learning_rate(self.model, rate)
        for (variable, divisor), scalar in zip(self._carried, scalars, strict=True):
            variable.assign(scalar.value / divisor)
        self.model.reset_metrics()
        self.model.stop_training = False

    @property
    def waited_s(self) -> float:
        """Seconds of the last epoch in which training and validation waited for batches."""
        return float(self._waited_s.numpy())

    @property
    def num_carried(self) -> int:
        """Scalars that the program reads anew at every call."""
        return len(self._carried)

    def _steps(self, micro_batches: int) -> tuple[Step, Step]:
        """Return what trains on a batch, and what validates on one."""
        return (
            train_step(self._workload, self.model, self.replicas, micro_batches),
            test_step(self.model, self.replicas),
        )

    def _begin(self, *, training: bool) -> None:
        """Prepare for going over all rows, in the graph."""
        self.model.reset_metrics()

    def _end(self, *, training: bool) -> None:
        """Bring together what going over all rows gave, in the graph."""

    def _carry(self, scalars: list[Scalar]) -> list[tuple[tf.Variable, int]]:
        carried = []
        for scalar in scalars:
            is_clip = scalar.attribute in CLIP_THRESHOLDS
            value = scalar.value  # a clip threshold was divided by prepare_optimizer
            with self.replicas.scope():
                variable = tf.Variable(value, dtype=tf.float64, trainable=False)
            scalar.replace(CarriedFloat.of_variable(value, variable))
            carried.append((variable, self.replicas.num if is_clip else 1))
        return carried

    def _run_epoch(
        self, train: Any, validation: Any, order: tf.Tensor, seeds: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        self._begin(training=True)
        last = self._run_batches(
            self._preparing(self._train, seeds, training=True),
            self._reader(train, order),
            self._num_rows,
            by_model=self._own_train_step,
        )
        self._end(training=True)
        logs = self._logs(last)
        if self._own_train_step and (not isinstance(last, Mapping) or "loss" not in logs):
            self._refuse_logs(last)
        return logs if validation is None else logs | self._run_validation(validation, seeds)

    def _run_validation(self, validation: Any, seeds: tf.Tensor | None) -> dict[str, tf.Tensor]:
        self._begin(training=False)
        last = self._run_batches(
            self._preparing(self._test, seeds, training=False),
            self._reader(validation, None),
            self._num_validation_rows,
            by_model=self._own_test_step,
        )
        self._end(training=False)
        return {f"val_{name}": value for name, value in self._logs(last).items()}

    def _preparing(self, step: Step, seeds: tf.Tensor | None, *, training: bool) -> _RowStep:
        """Return a step that computes first what the workload computes of each row."""
        per_example = self._per_example
        if per_example is None or seeds is None:
            return lambda replica, batch, numbers, num_rows: step(replica, batch, num_rows)
        seed = seeds[0 if training else 1]

        def prepared(replica: int, batch: Any, numbers: tf.Tensor, num_rows: int) -> Any:
            seen = per_example.applied(batch, numbers, seed, training=training)
            return step(replica, seen, num_rows)

        return prepared

    def _reader(self, rows: Any, order: tf.Tensor | None) -> Reader:
        if isinstance(rows, tf.data.Iterator):
            return StreamReader(rows, self._waited_s, self.replicas.window)
        return ResidentReader(rows, order)

    def _run_batches(self, step: _RowStep, reader: Reader, num_rows: int, *, by_model: bool) -> Any:
        """Run all batches; return what the last step returned, if that is the user's own."""
        size = self._batch_size
        if num_rows % size and not by_model and not self._needs_static_shapes:
            self._run_uneven_batches(step, reader, num_rows)
            return None
        full, rest = divmod(num_rows, size)
        # A loop cannot hand out what its last step returned, so that step stands behind it.
        looped = full - 1 if by_model and not rest else full
        last = None

        def batch(first: Any, count: int) -> Any:
            whole = by_model and not is_shared(count, self.replicas.num)
            num_shares = 1 if whole else self.replicas.num

            def run(replica: int, fetched: Any) -> Any:
                begin, end = split(count, replica if num_shares > 1 else 0, num_shares)
                numbers, rows = reader.part(fetched, first, begin, end, count)
                return step(replica, rows, numbers, count)

            return self.replicas.run(run, reader.fetch(count))

        def body(i: tf.Tensor) -> tuple[tf.Tensor]:
            batch(i * size, size)
            return (i + 1,)

        if looped == 1:
            last = batch(0, size)
        elif looped > 1:
            tf.while_loop(lambda i: i < looped, body, (tf.constant(0),), parallel_iterations=1)
        if full > looped:
            last = batch(looped * size, size)
        if rest:
            last = batch(full * size, rest)
        return last if by_model else None

    def _run_uneven_batches(self, step: _RowStep, reader: Reader, num_rows: int) -> None:
        """Run all batches in one loop, whose body serves the shorter last one too.

        A body is traced once, where a last batch of its own shape would trace it twice.
        """
        size = self._batch_size

        def body(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + size, num_rows)
            numbers, rows = reader.dynamic(first, end)
            step(0, rows, numbers, size)
            return (first + size,)

        tf.while_loop(
            lambda first: first < num_rows, body, (tf.constant(0),), parallel_iterations=1
        )

    def _logs(self, last: Any) -> dict[str, tf.Tensor]:
        """Return the metrics after the last batch, as ``fit`` would log them."""
        metrics = dict(self.model.get_metrics_result())
        if isinstance(last, Mapping) and set(last) != set(metrics):
            metrics = self.replicas.mean(dict(last))
        return {name: tf.convert_to_tensor(value) for name, value in metrics.items()}

    def _refuse_logs(self, logs: Any) -> NoReturn:
        raise WorkloadError(
            f"the train_step of {type(self._workload).__name__} or its model returned "
            f"{_names_in(logs)} but no loss: return metrics by name with the loss of the "
            "batch as 'loss', for example {'loss': loss}"
        )

    def _check_batches(self, micro_batches: int, uneven: Uneven) -> None:
        replicas, size = self.replicas.num, self._batch_size
        if size < replicas:
            raise WorkloadError(
                f"the global batch size {size} is smaller than the {replicas} replicas: each needs "
                "at least one row; enlarge the batch or use fewer replicas"
            )
        rest = self._num_rows % size
        if uneven == "refuse" and (size % replicas or rest % replicas):
            raise WorkloadError(
                f"the global batch size {size} or the {rest} row(s) of the last batch do not "
                f"divide by the {replicas} replicas, and uneven batches are to be refused: choose "
                'multiples, or Mirrored(uneven="split"), which weighs them by rows'
            )
        local = any(not layer.synchronized for layer in batch_norms(self.model))
        if 0 < rest < replicas and local:
            raise WorkloadError(
                f"the last batch has {rest} row(s) for {replicas} replicas, and BatchNormalization "
                "has no statistics where there are no rows: use "
                "Mirrored(synchronized_batch_norm=True), or a batch size that leaves more rows"
            )
        if micro_batches > 1 and self._own_train_step:
            raise WorkloadError(
                f"micro_batches is {micro_batches}, but a train_step of its own takes a batch as "
                "a whole: use 1, or a smaller batch size"
            )


def _names_in(logs: Any) -> str:
    return ", ".join(logs) if isinstance(logs, Mapping) else repr(logs)


def _initial(value: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
    """Keep a variable's first value; None stands for zeros, which most slots are."""
    return value if np.any(value) else None


def plain(logs: Mapping[str, Any]) -> Metrics:
    """Return metrics outside of TensorFlow, scalars as floats."""
    arrays = {name: value.numpy() for name, value in logs.items()}
    return {name: float(a) if np.ndim(a) == 0 else a for name, a in arrays.items()}
