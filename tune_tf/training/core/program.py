"""A traced epoch, its model, and how it serves one trial after another."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Uneven
from tune_tf.training.core.batch_norm import batch_norms
from tune_tf.training.core.build import build_for_training
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.row_weights import split
from tune_tf.training.core.scalars import CLIP_THRESHOLDS, Scalar, inner_optimizer
from tune_tf.training.core.step import (
    Step,
    has_own_test_step,
    has_own_train_step,
    is_shared,
    test_step,
    train_step,
)
from tune_tf.training.core.traced_scalar import TracedScalars
from tune_tf.training.core.update import prepare_optimizer
from tune_tf.training.input.per_example import PerExample
from tune_tf.training.input.reader import Reader, ResidentReader, StreamReader
from tune_tf.training.keras_internals import global_seed_generator, own_gradients_forgotten
from tune_tf.training.reuse.fingerprint import fingerprint
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.workload import Workload

Metrics = dict[str, Any]

_RowStep = Callable[[int, Any, tf.Tensor, int], Any]
"""A step that is told, before the number of rows of the global batch, those of its own rows."""


class Inputs(NamedTuple):
    """What an epoch is done with.

    Args:
        train: Placed training rows ``(x, y[, sample_weight])``, or an iterator of their batches as
            :class:`~tune_tf.training.input.stream.Stream` gives it.
        validation: Validation rows in either form, or None.
        order: Row numbers, int32, shape ``[num_rows]``; None where batches have their order.
        seeds: Of what is computed of each row, as ``example_seeds``
            gives them; None where nothing is.
        unseeded: What ``keras.random`` begins with where it is given no seed, int64, shape ``[2]``.
    """

    train: Any
    validation: Any
    order: "np.ndarray[Any, Any] | None"
    seeds: "np.ndarray[Any, Any] | None"
    unseeded: "np.ndarray[Any, Any]"


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
        variables: All variables that the model and its step refer to, in an order that models of
            one structure share; the optimizer's slots come later.
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
        variables: Sequence[Any],
        scalars: list[Scalar],
        micro_batches: int = 1,
        uneven: Uneven = "split",
        per_example: PerExample | None = None,
        streamed: bool = False,
    ) -> None:
        self._per_example = per_example
        self._workload = workload
        self._state_of_workload = WorkloadState.of(workload)
        self.model = model
        self.replicas = replicas
        self._num_rows = num_rows
        self._num_validation_rows = num_validation_rows
        self._batch_size = global_batch_size
        self._variables = tuple(variables)
        with _unchanged(self._variables):  # a call moves generators and the states of RNNs
            build_for_training(model, sample, replicas)
        prepare_optimizer(model, replicas)
        own = {id(variable) for variable in self._variables}
        self._slots = [
            (variable, _initial(variable.numpy()))
            for variable in model.optimizer.variables
            if id(variable) not in own
        ]
        # Those of Keras' own begin with the same number everywhere, or as copies of the weights.
        self._slots_differ = not _is_of_keras(inner_optimizer(model)) or any(
            value is not None and np.ptp(value) for _, value in self._slots
        )
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
        #: Why it can serve its first trial only, if so.
        self.unshared_for: str | None = None
        #: Which parameters have changed among the trials that it served.
        self.reuse: ReuseRecord | None = None
        with tf.device("CPU:0"):
            self._waited_s = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._one_batch, self._all_batches = tf.constant(1), tf.constant(tf.int32.max)
        self._unseeded = global_seed_generator().state
        # Until a trace has told. Among several replicas each draws by a generator of its thread's.
        self._draws_unseeded = replicas.num == 1
        self._trace()

    def trace_anew(self) -> None:
        """Forget the traces: the next epoch sees the model as it is then, and carries nothing."""
        self._carried = TracedScalars((), (), ())
        self._trace()

    def structure(self) -> str | None:
        """Return a key of the model as it stands; None if it cannot be compared."""
        return fingerprint([self.model], self._carried.places()).key

    def _trace(self) -> None:
        self._epoch = self._traced(self._run_epoch, jit_compile=self._jit)
        self._validation = self._traced(self._run_validation, jit_compile=self._jit)

    def epoch(self, inputs: Inputs) -> Metrics:
        """Train on every row once in the given order, then validate.

        Returns:
            Metrics by Keras' names, those of validation behind ``val_``; scalars as floats.
        """
        return self._ran(self._epoch, inputs, self._all_batches)

    def first_batch(self, inputs: Inputs, *, eagerly: bool = False) -> Metrics:
        """Do as :meth:`epoch` does, but of the batches in a loop only the first.

        Args:
            inputs: Of the epoch; arrays.
            eagerly: Whether without a graph.
        """
        if not eagerly:
            return self._ran(self._epoch, inputs, self._one_batch)
        with self._state_of_workload.noted(self._workload):
            return self._ran(self._run_epoch, inputs, self._one_batch)

    def _ran(self, epoch: Callable[..., Any], inputs: Inputs, most: tf.Tensor) -> Metrics:
        train, validation, order, seeds, unseeded = inputs
        self._waited_s.assign(0.0)
        if self._draws_unseeded:
            self._unseeded.assign(unseeded)
        order, seeds = (a if a is None else tf.constant(a) for a in (order, seeds))
        return plain_metrics(epoch(train, validation, order, seeds, most))

    def state(self) -> "list[np.ndarray[Any, Any]]":
        """Return the values of all variables of the model, its step and its optimizer."""
        return [variable.numpy() for variable in self._all_variables()]

    def set_state(self, values: "Sequence[np.ndarray[Any, Any]]") -> None:
        """Set the variables to what :meth:`state` returned."""
        for variable, value in zip(self._all_variables(), values, strict=True):
            variable.assign(value)

    def _all_variables(self) -> list[Any]:
        return [*self._variables, *(variable for variable, _ in self._slots)]

    def validate(self, validation: Any, seeds: "np.ndarray[Any, Any] | None" = None) -> Metrics:
        """Validate alone; return metrics as :meth:`epoch` does.

        Args:
            validation: Placed validation rows.
            seeds: As for :meth:`epoch`.
        """
        return plain_metrics(self._validation(validation, seeds, self._all_batches))

    def serves(self, scalars: Sequence[Scalar]) -> bool:
        """Return whether what was traced holds for other numbers of the carried scalars."""
        return self._carried.serves(scalars if self._carried else ())

    def take_over(
        self, fresh: keras.Model, variables: Sequence[Any], scalars: Sequence[Scalar]
    ) -> None:
        """Become the trial of a fresh model of the same structure, in every variable.

        Args:
            fresh: The model.
            variables: Its variables, as the program was made with its own.
            scalars: Its scalars.
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
        self._carried.take_over(scalars if self._carried else ())
        self.model.reset_metrics()
        self.model.stop_training = False

    def _copy(self, variables: Sequence[Any], sources: Sequence[Any]) -> None:
        for variable, source in zip(variables, sources, strict=True):
            if variable is not source:
                whole = self.replicas.num > 1 or not isinstance(source, keras.Variable)
                variable.assign(source.numpy() if whole else source.value)

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

    def _carry(self, scalars: list[Scalar]) -> TracedScalars:
        return self._carrying([[scalar] for scalar in scalars])

    def _carrying(self, owners: Sequence[Sequence[Scalar]]) -> TracedScalars:
        """Return scalars to carry, each with its owners in all copies of the model."""
        # A clip threshold was divided by prepare_optimizer.
        divisors = [
            self.replicas.num if scalar.attribute in CLIP_THRESHOLDS else 1 for scalar, *_ in owners
        ]
        with self.replicas.scope():
            variables = [
                tf.Variable(scalar.value, dtype=tf.float64, trainable=False)
                for scalar, *_ in owners
            ]
        return TracedScalars(owners, divisors, variables)

    def _traced(self, body: Callable[..., Any], **options: Any) -> Any:
        """Return a function that runs as a graph, in which carried scalars are read anew."""
        # TensorFlow counts traces by code, but for a partial, and would warn of each new program.
        return tf.function(partial(self._in_graph, body), autograph=False, **options)

    def _in_graph(self, body: Callable[..., Any], *args: Any) -> Any:
        def made(create: Callable[..., Any], **given: Any) -> Any:
            self.unshared_for = "tracing made a variable, which has no first value to go back to"
            variable = create(**given)
            self._state_of_workload.note_trained([variable])
            return variable

        before = _random_states()
        with (
            self._carried.in_graph(),
            own_gradients_forgotten(),
            tf.variable_creator_scope(made),
            self._state_of_workload.noted(self._workload),
        ):
            traced = body(*args)
        if before != _random_states():  # they are constants of the graph now
            self.unshared_for = "tracing drew numbers of Python or NumPy"
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
            self._preparing(self._train, seeds, training=True),
            self._reader(train, order),
            self._num_rows,
            most,
            by_model=self._own_train_step,
        )
        self._end(training=True)
        logs = self._logs(last)
        if self._own_train_step and (not isinstance(last, Mapping) or "loss" not in logs):
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
            self._preparing(self._test, seeds, training=False),
            self._reader(validation, None),
            self._num_validation_rows,
            most,
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

    def _run_batches(
        self, step: _RowStep, reader: Reader, num_rows: int, most: tf.Tensor, *, by_model: bool
    ) -> Any:
        """Run all batches; return what the last step returned, if that is the user's own.

        Args:
            step: Of a batch.
            reader: Of the rows.
            num_rows: How many.
            most: How many batches in a loop; those that stand behind it are always run.
            by_model: Whether the step is the user's own.
        """
        size = self._batch_size
        if num_rows % size and not by_model and not self._needs_static_shapes:
            self._run_uneven_batches(step, reader, num_rows, most)
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
            end = tf.minimum(most, looped)
            tf.while_loop(lambda i: i < end, body, (tf.constant(0),), parallel_iterations=1)
        if full > looped:
            last = batch(looped * size, size)
        if rest:
            last = batch(full * size, rest)
        return last if by_model else None

    def _run_uneven_batches(
        self, step: _RowStep, reader: Reader, num_rows: int, most: tf.Tensor
    ) -> None:
        """Run all batches in one loop, whose body serves the shorter last one too.

        A body is traced once, where a last batch of its own shape would trace it twice.
        """
        size = self._batch_size
        last = tf.minimum(tf.minimum(most, num_rows // size + 1) * size, num_rows)

        def body(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + size, num_rows)
            numbers, rows = reader.dynamic(first, end)
            step(0, rows, numbers, size)
            return (first + size,)

        tf.while_loop(lambda first: first < last, body, (tf.constant(0),), parallel_iterations=1)

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


def _random_states() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  which user code draws from
    return random.getstate(), state[1].tobytes(), *state[2:]


def _is_of_keras(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("keras.")


def _reads(variable: Any) -> bool:
    """Return whether the graph that is being traced has come to use a variable."""
    captured = getattr(tf.compat.v1.get_default_graph(), "captures", ())
    return any(outer is variable.value.handle for outer, _ in captured)


@contextlib.contextmanager
def _unchanged(variables: Sequence[Any]) -> Iterator[None]:
    """Put back what is assigned to variables meanwhile, other than to weights that are trained."""
    before = [(each, each.numpy()) for each in variables if not each.trainable]
    yield
    for variable, value in before:
        variable.assign(value)


def _initial(value: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
    """Keep a variable's first value; None stands for zeros, which most slots are."""
    return value if np.any(value) else None


def plain_metrics(logs: Mapping[str, Any]) -> Metrics:
    """Return metrics outside of TensorFlow, scalars as floats."""
    arrays = {name: value.numpy() for name, value in logs.items()}
    return {name: float(a) if np.ndim(a) == 0 else a for name, a in arrays.items()}
