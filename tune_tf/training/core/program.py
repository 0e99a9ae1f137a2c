"""Epoch of a model as a traced program, shared by trials of one structure."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Uneven
from tune_tf.result_keys import Metrics
from tune_tf.training.core.batch_norm import batch_norms
from tune_tf.training.core.build import build_for_training
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.row_weights import split_rows
from tune_tf.training.core.scalars import CLIP_THRESHOLDS, Scalar, inner_optimizer
from tune_tf.training.core.step import (
    Step,
    can_share_batch,
    has_own_test_step,
    has_own_train_step,
    test_step,
    train_step,
)
from tune_tf.training.core.traced_scalar import TracedScalars
from tune_tf.training.core.update import prepare_optimizer
from tune_tf.training.input.per_example import PerExample
from tune_tf.training.input.reader import Reader, ResidentReader, StreamReader
from tune_tf.training.keras_internals import global_seed_generator, unregister_new_gradients
from tune_tf.training.reuse.fingerprint import fingerprint
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadReset
from tune_tf.workload import Workload

_NumberedStep = Callable[[int, Any, tf.Tensor, int], Any]
"""``step(replica, batch, row_numbers, num_rows)``; ``num_rows`` is that of the global batch."""


class Inputs(NamedTuple):
    """Inputs of one epoch.

    Args:
        train: Training rows ``(x, y[, sample_weight])`` on the devices, or a batch iterator.
        validation: Validation rows in either form, or None.
        order: Row numbers, int32, shape ``[num_rows]``; None for an iterator.
        seeds: Seeds of the per-example preprocessing (see ``example_seeds``); None without it.
        unseeded: Initial state of the ``keras.random`` generator for draws without a seed, int64,
            shape ``[2]``.
    """

    train: Any
    validation: Any
    order: "np.ndarray[Any, Any] | None"
    seeds: "np.ndarray[Any, Any] | None"
    unseeded: "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class BatchSettings:
    """Row counts and batch settings of a trial.

    Args:
        sample: A few rows ``(x, y[, sample_weight])`` as the model sees them, to create variables.
        num_rows: Rows of the training set.
        num_validation_rows: Rows of the validation set; 0 for none.
        global_batch_size: Rows of one gradient update and of one validation batch.
        micro_batches: Pieces into which a replica splits its part of a batch.
        uneven: Whether to split or refuse a batch that does not divide by the replicas.
        per_example: Preprocessing of each row before a step, or None.
        streamed: Whether batches come from an iterator, which XLA does not support.
    """

    sample: tuple[Any, ...]
    num_rows: int
    num_validation_rows: int
    global_batch_size: int
    micro_batches: int = 1
    uneven: Uneven = "split"
    per_example: PerExample | None = None
    streamed: bool = False


class Program:
    """Training and validation of one epoch as one graph call.

    The program keeps the first trial's model. :meth:`take_over` copies later trials of the same
    structure into it without another trace.

    Args:
        workload: The workload of the trials.
        model: Compiled, with the first trial's weights.
        replicas: The replicas to train on.
        settings: Rows and batches.
        variables: All variables that the model and its step refer to, except the optimizer's
            slots, in an order that models of one structure share.
        scalars: The model's scalars to read at every call; none for a program of one trial.

    Raises:
        WorkloadError: The replicas cannot train this model on these batches.
    """

    def __init__(
        self,
        workload: Workload,
        model: keras.Model,
        replicas: Replicas,
        settings: BatchSettings,
        *,
        variables: Sequence[Any],
        scalars: list[Scalar],
    ) -> None:
        self._per_example = settings.per_example
        self._workload = workload
        self._workload_state = WorkloadReset.of(workload)
        self.model = model
        self.replicas = replicas
        self._num_rows = settings.num_rows
        self._num_validation_rows = settings.num_validation_rows
        self._batch_size = settings.global_batch_size
        self._variables = tuple(variables)
        with _preserve_state(self._variables):  # a call advances random generators and RNN states
            build_for_training(model, settings.sample, replicas)
        prepare_optimizer(model, replicas)
        own = {id(variable) for variable in self._variables}
        self._slots = [
            (variable, _initial(variable.numpy()))
            for variable in model.optimizer.variables
            if id(variable) not in own
        ]
        # Keras' optimizers initialize a slot with one number or with copies of the weights.
        self._slots_differ = not _is_of_keras(inner_optimizer(model)) or any(
            value is not None and np.ptp(value) for _, value in self._slots
        )
        self._traced_scalars = self._trace_scalars(scalars)
        self._has_own_train_step = has_own_train_step(workload, model)
        self._has_own_test_step = has_own_test_step(model)
        self._check_batches(settings.micro_batches, settings.uneven)
        self._train, self._test = self._steps(settings.micro_batches)
        several = replicas.has_several_devices
        self._jit = bool(model.jit_compile) and not several and not settings.streamed
        # Keras weighs the losses of several outputs by rows only if their number is static.
        by_output = any(metric.name.endswith("_loss") for metric in model.metrics)
        self._needs_static_shapes = self._jit or several or by_output or settings.micro_batches > 1
        #: Why later trials cannot share this program; None if they can.
        self.unshareable_reason: str | None = None
        #: Parameters that have changed among this program's trials.
        self.reuse: ReuseRecord | None = None
        with tf.device("CPU:0"):
            self._waited_s = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._one_batch, self._all_batches = tf.constant(1), tf.constant(tf.int32.max)
        self._unseeded = global_seed_generator().state
        # Updated by the trace. With several replicas, each draws from its thread's generator.
        self._draws_unseeded = replicas.num == 1
        self._trace()

    def retrace(self) -> None:
        """Discard the traces; the next epoch traces the model anew, with fixed scalars."""
        self._traced_scalars = TracedScalars((), (), ())
        self._trace()

    def structure(self) -> str | None:
        """Return a key of the model's current structure; None if it cannot be compared."""
        return fingerprint([self.model], self._traced_scalars.places()).key

    def _trace(self) -> None:
        self._epoch = self._graph_function(self._run_epoch, jit_compile=self._jit)
        self._validation = self._graph_function(self._run_validation, jit_compile=self._jit)

    def epoch(self, inputs: Inputs) -> Metrics:
        """Train on every row once in the given order, then validate.

        The returned metrics have Keras' names, ``val_...`` for validation.
        """
        return self._run(self._epoch, inputs, self._all_batches)

    def first_batch(self, inputs: Inputs, *, eagerly: bool = False) -> Metrics:
        """Run :meth:`epoch` on arrays with only the first batch of each loop."""
        if not eagerly:
            return self._run(self._epoch, inputs, self._one_batch)
        with self._workload_state.record_changes(self._workload):
            return self._run(self._run_epoch, inputs, self._one_batch)

    def _run(self, epoch: Callable[..., Any], inputs: Inputs, most: tf.Tensor) -> Metrics:
        train, validation, order, seeds, unseeded = inputs
        self._waited_s.assign(0.0)
        if self._draws_unseeded:
            self._unseeded.assign(unseeded)
        order, seeds = (a if a is None else tf.constant(a) for a in (order, seeds))
        return plain_metrics(epoch(train, validation, order, seeds, most))

    def state(self) -> "list[np.ndarray[Any, Any]]":
        """Return the values of all variables of the model, step and optimizer."""
        return [variable.numpy() for variable in self._all_variables()]

    def set_state(self, values: "Sequence[np.ndarray[Any, Any]]") -> None:
        """Set all variables to a result of :meth:`state`."""
        for variable, value in zip(self._all_variables(), values, strict=True):
            variable.assign(value)

    def _all_variables(self) -> list[Any]:
        return [*self._variables, *(variable for variable, _ in self._slots)]

    def validate(self, validation: Any, seeds: "np.ndarray[Any, Any] | None" = None) -> Metrics:
        """Validate without training and return metrics like :meth:`epoch`."""
        return plain_metrics(self._validation(validation, seeds, self._all_batches))

    def serves(self, scalars: Sequence[Scalar]) -> bool:
        """Return whether the trace is valid for these values of the traced scalars."""
        return self._traced_scalars.serves(scalars if self._traced_scalars else ())

    def take_over(
        self, fresh: keras.Model, variables: Sequence[Any], scalars: Sequence[Scalar]
    ) -> None:
        """Copy a fresh model of the same structure into this program.

        ``variables`` and ``scalars`` are the model's, in the program's order.
        """
        optimizer = fresh.optimizer
        if self._slots_differ and not optimizer.built:
            with self.replicas.scope():
                optimizer.build(fresh.trainable_variables)
            self._copy(self.model.optimizer.variables, optimizer.variables)
        else:
            for variable, value in self._slots:
                variable.assign(np.zeros(variable.shape) if value is None else value)
        self._copy(self._variables, variables)
        self._traced_scalars.take_over(scalars if self._traced_scalars else ())
        self.model.reset_metrics()
        self.model.stop_training = False

    def _copy(self, variables: Sequence[Any], sources: Sequence[Any]) -> None:
        for variable, source in zip(variables, sources, strict=True):
            if variable is not source:
                whole = self.replicas.num > 1 or not isinstance(source, keras.Variable)
                variable.assign(source.numpy() if whole else source.value)

    @property
    def waited_s(self) -> float:
        """Seconds that the last epoch waited for batches."""
        return float(self._waited_s.numpy())

    @property
    def num_traced_scalars(self) -> int:
        """Number of scalars that the program reads at every call."""
        return len(self._traced_scalars)

    def _steps(self, micro_batches: int) -> tuple[Step, Step]:
        return (
            train_step(self._workload, self.model, self.replicas, micro_batches),
            test_step(self.model, self.replicas),
        )

    def _begin(self, *, training: bool) -> None:
        """Prepare a pass over all rows; called in the graph."""
        self.model.reset_metrics()

    def _end(self, *, training: bool) -> None:
        """Combine the results of a pass over all rows; called in the graph."""

    def _trace_scalars(self, scalars: list[Scalar]) -> TracedScalars:
        return self._traced_scalars_of([[scalar] for scalar in scalars])

    def _traced_scalars_of(self, owners: Sequence[Sequence[Scalar]]) -> TracedScalars:
        """Return traced scalars with their owners in all copies of the model."""
        # prepare_optimizer has divided the clip thresholds by the number of replicas.
        divisors = [
            self.replicas.num if scalar.attribute in CLIP_THRESHOLDS else 1 for scalar, *_ in owners
        ]
        with self.replicas.scope():
            variables = [
                tf.Variable(scalar.value, dtype=tf.float64, trainable=False)
                for scalar, *_ in owners
            ]
        return TracedScalars(owners, divisors, variables)

    def _graph_function(self, body: Callable[..., Any], **options: Any) -> Any:
        """Return a function that runs as a graph and reads the traced scalars at every call."""
        # TensorFlow counts traces by code object and would warn for each new program; a partial has
        # no code object.
        return tf.function(partial(self._in_graph, body), autograph=False, **options)

    def _in_graph(self, body: Callable[..., Any], *args: Any) -> Any:
        def create_variable(create: Callable[..., Any], **given: Any) -> Any:
            self.unshareable_reason = "tracing created a variable that cannot be reset"
            variable = create(**given)
            self._workload_state.record_trained([variable])
            return variable

        before = _random_states()
        with (
            self._traced_scalars.in_graph(),
            unregister_new_gradients(),
            tf.variable_creator_scope(create_variable),
            self._workload_state.record_changes(self._workload),
        ):
            traced = body(*args)
        if before != _random_states():  # the drawn numbers are constants of the graph
            self.unshareable_reason = "tracing drew random numbers from Python or NumPy"
        return traced

    def _run_epoch(
        self,
        train: Any,
        validation: Any,
        order: tf.Tensor,
        seeds: tf.Tensor | None,
        most: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        self._begin(training=True)
        last = self._run_batches(
            self._with_preprocessing(self._train, seeds, training=True),
            self._reader(train, order),
            self._num_rows,
            most,
            own_step=self._has_own_train_step,
        )
        self._end(training=True)
        logs = self._logs(last)
        if self._has_own_train_step and (not isinstance(last, Mapping) or "loss" not in logs):
            self._refuse_logs(last)
        if validation is not None:
            logs |= self._run_validation(validation, seeds, most)
        self._draws_unseeded = self._draws_unseeded and _reads(self._unseeded)
        return logs

    def _run_validation(
        self, validation: Any, seeds: tf.Tensor | None, most: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        self._begin(training=False)
        last = self._run_batches(
            self._with_preprocessing(self._test, seeds, training=False),
            self._reader(validation, None),
            self._num_validation_rows,
            most,
            own_step=self._has_own_test_step,
        )
        self._end(training=False)
        return {f"val_{name}": value for name, value in self._logs(last).items()}

    def _with_preprocessing(
        self, step: Step, seeds: tf.Tensor | None, *, training: bool
    ) -> _NumberedStep:
        """Return a step preceded by the workload's per-example preprocessing."""
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

    def _run_batches(
        self, step: _NumberedStep, reader: Reader, num_rows: int, most: tf.Tensor, *, own_step: bool
    ) -> Any:
        """Run all batches; return the last step's result if the step is custom (``own_step``).

        ``most`` limits the batches in the loop; batches after the loop always run.
        """
        size = self._batch_size
        if num_rows % size and not own_step and not self._needs_static_shapes:
            self._run_uneven_batches(step, reader, num_rows, most)
            return None
        full, rest = divmod(num_rows, size)
        # A loop cannot return its last step's result, so that step runs after the loop.
        looped = full - 1 if own_step and not rest else full
        last = None

        def batch(first: Any, count: int) -> Any:
            whole = own_step and not can_share_batch(count, self.replicas.num)
            num_shares = 1 if whole else self.replicas.num

            def run(replica: int, fetched: Any) -> Any:
                begin, end = split_rows(count, replica if num_shares > 1 else 0, num_shares)
                numbers, rows = reader.part(fetched, first, begin, end, count)
                return step(replica, rows, numbers, count)

            return self.replicas.run(run, reader.fetch(count))

        def body(i: tf.Tensor) -> tuple[tf.Tensor]:
            batch(i * size, size)
            return (i + 1,)

        if looped == 1:
            last = batch(0, size)
        elif looped > 1:
            end = tf.minimum(most, looped)
            tf.while_loop(lambda i: i < end, body, (tf.constant(0),), parallel_iterations=1)
        if full > looped:
            last = batch(looped * size, size)
        if rest:
            last = batch(full * size, rest)
        return last if own_step else None

    def _run_uneven_batches(
        self, step: _NumberedStep, reader: Reader, num_rows: int, most: tf.Tensor
    ) -> None:
        """Run all batches in one loop, so that a shorter last batch needs no trace."""
        size = self._batch_size
        last = tf.minimum(tf.minimum(most, num_rows // size + 1) * size, num_rows)

        def body(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + size, num_rows)
            numbers, rows = reader.dynamic(first, end)
            step(0, rows, numbers, size)
            return (first + size,)

        tf.while_loop(lambda first: first < last, body, (tf.constant(0),), parallel_iterations=1)

    def _logs(self, last: Any) -> dict[str, tf.Tensor]:
        """Return the metrics after the last batch as ``fit`` logs them."""
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
                "at least one row; use a larger batch or fewer replicas"
            )
        rest = self._num_rows % size
        if uneven == "refuse" and (size % replicas or rest % replicas):
            raise WorkloadError(
                f"the global batch size {size} or the {rest} row(s) of the last batch are not "
                f'divisible by the {replicas} replicas, and uneven is "refuse": choose multiples, '
                'or use Mirrored(uneven="split"), which weights replicas by rows'
            )
        local = any(not layer.synchronized for layer in batch_norms(self.model))
        if 0 < rest < replicas and local:
            raise WorkloadError(
                f"the last batch has {rest} row(s) for {replicas} replicas, and BatchNormalization "
                "has no statistics in a replica without rows: use "
                "Mirrored(synchronized_batch_norm=True), or a batch size that leaves more rows"
            )
        if micro_batches > 1 and self._has_own_train_step:
            raise WorkloadError(
                f"micro_batches is {micro_batches}, but a custom train_step takes whole batches: "
                "use 1, or a smaller batch size"
            )


def _names_in(logs: Any) -> str:
    return ", ".join(logs) if isinstance(logs, Mapping) else repr(logs)


def _random_states() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  user code draws from it
    return random.getstate(), state[1].tobytes(), *state[2:]


def _is_of_keras(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("keras.")


def _reads(variable: Any) -> bool:
    """Return whether the graph being traced uses a variable."""
    captured = getattr(tf.compat.v1.get_default_graph(), "captures", ())
    return any(outer is variable.value.handle for outer, _ in captured)


@contextlib.contextmanager
def _preserve_state(variables: Sequence[Any]) -> Iterator[None]:
    """Restore the non-trainable variables on exit."""
    before = [(each, each.numpy()) for each in variables if not each.trainable]
    yield
    for variable, value in before:
        variable.assign(value)


def _initial(value: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
    """Return an initial value; None for zeros, the value of most slots, to save memory."""
    return value if np.any(value) else None


def plain_metrics(logs: Mapping[str, Any]) -> Metrics:
    """Convert metrics to NumPy arrays, and scalars to floats."""
    arrays = {name: value.numpy() for name, value in logs.items()}
    return {name: float(a) if np.ndim(a) == 0 else a for name, a in arrays.items()}
