"""Epoch of a model as a traced program, shared by trials of one structure."""

import contextlib
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.result_keys import Metrics
from tune_tf.training.core.epoch import BatchLoop, EpochInputs, NumberedStep
from tune_tf.training.core.frozen_outputs import SkippedLayers
from tune_tf.training.core.scalars import Scalar, inner_optimizer, scalars_of
from tune_tf.training.core.step import Step
from tune_tf.training.core.traced_scalar import TracedScalars
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.reader import DatasetReader, Reader, ResidentReader, StreamReader
from tune_tf.training.keras_internals import (
    draws_as_without_xla,
    global_seed_generator,
    unregister_new_gradients,
)
from tune_tf.training.reuse.fingerprint import fingerprint
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.workload import Workload

_MISSING_KERNEL = re.compile(r"on XLA_\w+: (\w+) \(")
_XLA_ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.InternalError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
)

_log = logging.getLogger(__name__)


class Program:
    """Training and validation of one epoch as one graph call.

    The program keeps the first trial's model. :meth:`load_model` copies later trials of the same
    structure into it without another trace.

    Args:
        workload: The workload of the trials.
        step: Step whose compiled model has the first trial's weights.
        rows: Rows of the first trial, for their number and a sample.
        batch_size: Rows of one gradient update and of one validation batch.
        variables: All variables that the model and its step refer to, except the optimizer's
            slots, in an order that models of one structure share.
        scalars: The model's scalars to read at every call; none for a program of one trial.
        skipped: Frozen layers whose outputs are the inputs of the rows; None for the rows' own.
    """

    def __init__(
        self,
        workload: Workload,
        step: Step,
        rows: DeviceRows,
        batch_size: int,
        *,
        variables: Sequence[Any],
        scalars: Sequence[Scalar],
        skipped: SkippedLayers | None = None,
    ) -> None:
        self._workload = workload
        self.skipped = skipped
        self._workload_state = WorkloadState.of(workload)
        self.step = step
        self.model = model = step.model
        self.batch_size = batch_size
        self.num_rows = rows.num_train
        self.num_validation_rows = rows.num_validation
        self._per_example = rows.per_example
        self.variables = tuple(variables)
        replicas = step.replicas
        state = [(each, each.numpy()) for each in self.variables if not each.trainable]
        step.build(rows.sample)
        for variable, value in state:  # the build advanced random generators and RNN states
            variable.assign(value)
        of_model = {id(variable) for variable in self.variables}
        slots = [each for each in model.optimizer.variables if id(each) not in of_model]
        self._slots = [(slot, _initial(slot.numpy())) for slot in slots]
        # Keras' optimizers initialize a slot with one number or with copies of the weights.
        is_of_keras = type(inner_optimizer(model)).__module__.startswith("keras.")
        self._slots_differ = not is_of_keras or any(
            value is not None and np.ptp(value) for _, value in self._slots
        )
        others = [scalars_of(copy) for copy in step.copies[1:]] if scalars else []
        with replicas.scope():
            by_copy = list(zip(scalars, *others, strict=True))
            self._traced_scalars = TracedScalars(by_copy, replicas.num)
        step.check(self.num_rows, batch_size)
        several = replicas.shape != (1,)
        #: Whether XLA compiles the graphs. It would run them on TensorFlow's first device.
        self.jit_compile = (
            bool(model.jit_compile)
            and not several
            and not rows.is_streamed
            and replicas.is_on_first_device
        )
        # Keras weighs the losses of several outputs by rows only if their number is static.
        by_output = any(metric.name.endswith("_loss") for metric in model.metrics)
        needs_static = self.jit_compile or several or by_output or step.micro_batches > 1
        self._batches = BatchLoop(replicas, batch_size, needs_static_shapes=needs_static)
        #: Why later trials cannot share this program; None if they can.
        self.unshareable_reason: str | None = None
        #: Parameters that have changed among this program's trials.
        self.reuse: ReuseRecord | None = None
        #: Program of a parameter server or of its worker that runs a part of this one.
        self.derived: Any = None
        with tf.device("CPU:0"):
            self._waited_s = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            # Batches and rows of the last pass over a data set, of training and of validation.
            self._seen = tf.Variable(tf.zeros([2, 2], tf.int64), trainable=False)
            self._one_batch, self._all_batches = tf.constant(1), tf.constant(tf.int32.max)
        self._unseeded = global_seed_generator().state
        # Updated by the trace. With several replicas, each draws from its thread's generator.
        self._draws_unseeded = replicas.num == 1
        self._trace()

    @property
    def waited_s(self) -> float:
        """Seconds that the last epoch waited for batches."""
        return float(self._waited_s.numpy())

    @property
    def num_seen(self) -> tuple[int, int]:
        """Numbers of batches and rows of a data set in the last epoch."""
        batches, rows = self._seen.numpy()[0]
        return int(batches), int(rows)

    @property
    def traces_scalars(self) -> bool:
        """Whether the program reads scalars at every call."""
        return bool(self._traced_scalars)

    def epoch(self, inputs: EpochInputs) -> Metrics:
        """Train on every row once in the given order, then validate; return Keras' metrics."""
        return self._run(self._epoch, inputs, self._all_batches)

    def first_batch(self, inputs: EpochInputs, *, eagerly: bool = False) -> Metrics:
        """Run :meth:`epoch` on arrays with only the first batch of each loop."""
        if not eagerly:
            return self._run(self._epoch, inputs, self._one_batch)
        device = self.step.replicas.device_scope()
        with self._workload_state.record_changes(self._workload), device:
            return self._run(self._run_epoch, inputs, self._one_batch)

    def validate(self, validation: Any, seeds: "np.ndarray[Any, Any] | None" = None) -> Metrics:
        """Validate without training and return metrics like :meth:`epoch`."""
        return plain_metrics(self._validation(validation, seeds, self._all_batches))

    def state(self) -> "list[np.ndarray[Any, Any]]":
        """Return the values of all variables of the model, step and optimizer."""
        return [variable.numpy() for variable in self._all_variables()]

    def set_state(self, values: "Sequence[np.ndarray[Any, Any]]") -> None:
        """Set all variables to a result of :meth:`state`."""
        for variable, value in zip(self._all_variables(), values, strict=True):
            variable.assign(value)

    def is_valid_for(self, scalars: Sequence[Scalar]) -> bool:
        """Return whether the trace is valid for these values of the traced scalars."""
        return self._traced_scalars.are_valid_for(scalars if self._traced_scalars else ())

    def load_model(
        self, fresh: keras.Model, variables: Sequence[Any], scalars: Sequence[Scalar]
    ) -> None:
        """Copy a fresh model of the same structure, with its variables and scalars."""
        optimizer = fresh.optimizer
        if self._slots_differ and not optimizer.built:
            with self.step.replicas.scope():
                optimizer.build(fresh.trainable_variables)
            self._copy(self.model.optimizer.variables, optimizer.variables)
        else:
            for variable, value in self._slots:
                variable.assign(np.zeros(variable.shape) if value is None else value)
        self._copy(self.variables, variables)
        self._traced_scalars.assign(scalars if self._traced_scalars else ())
        self.model.reset_metrics()
        self.model.stop_training = False

    def structure(self) -> str | None:
        """Return a key of the model's current structure; None if it cannot be compared."""
        return fingerprint([self.model], self._traced_scalars.scalars).key

    def retrace(self) -> None:
        """Discard the traces; the next epoch traces the model anew, with fixed scalars."""
        self._traced_scalars = TracedScalars(())
        self._trace()

    def graph_function(
        self, body: Callable[..., Any], *, jit_compile: bool = False, **options: Any
    ) -> Any:
        """Return a function that runs as a graph and reads the traced scalars at every call.

        With ``jit_compile``, XLA compiles it if it can.
        """
        # TensorFlow counts traces by code object and would warn for each new program; a partial has
        # no code object.
        plain, compiled = (
            tf.function(
                partial(self._trace_body, body, jit), autograph=False, jit_compile=jit, **options
            )
            for jit in (None, True)
        )
        return _compiled_or_plain(compiled, plain) if jit_compile else plain

    def _trace(self) -> None:
        self._epoch = self.graph_function(self._run_epoch, jit_compile=self.jit_compile)
        self._validation = self.graph_function(self._run_validation, jit_compile=self.jit_compile)

    def _run(
        self, epoch: Callable[..., Any], inputs: EpochInputs, max_batches: tf.Tensor
    ) -> Metrics:
        train, validation, order, seeds, unseeded, limit = inputs
        if limit is not None:
            max_batches = tf.constant(limit)
        self._waited_s.assign(0.0)
        if self._draws_unseeded:
            self._unseeded.assign(unseeded)
        order, seeds = (a if a is None else tf.constant(a) for a in (order, seeds))
        return plain_metrics(epoch(train, validation, order, seeds, max_batches))

    def _all_variables(self) -> list[Any]:
        return [*self.variables, *(variable for variable, _ in self._slots)]

    def _copy(self, variables: Sequence[Any], sources: Sequence[Any]) -> None:
        for variable, source in zip(variables, sources, strict=True):
            if variable is not source:
                mirrored = self.step.replicas.num > 1 or not isinstance(source, keras.Variable)
                variable.assign(source.numpy() if mirrored else source.value)

    def _trace_body(self, body: Callable[..., Any], jit_compile: bool | None, *args: Any) -> Any:
        def create_variable(create: Callable[..., Any], **settings: Any) -> Any:
            self.unshareable_reason = "tracing created a variable that cannot be reset"
            variable = create(**settings)
            self._workload_state.record_trained([variable])
            return variable

        before = _random_states()
        with (
            draws_as_without_xla() if jit_compile else contextlib.nullcontext(),
            self.step.replicas.device_scope(),
            self._traced_scalars.in_graph(),
            unregister_new_gradients(),
            tf.variable_creator_scope(create_variable),
            self._workload_state.record_changes(self._workload),
        ):
            outputs = body(*args)
        if before != _random_states():  # the drawn numbers are constants of the graph
            self.unshareable_reason = "tracing drew random numbers from Python or NumPy"
        return outputs

    def _run_epoch(
        self,
        train: Any,
        validation: Any,
        order: tf.Tensor,
        seeds: tf.Tensor | None,
        max_batches: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        result = self._run_batches(train, order, seeds, max_batches, training=True)
        logs = self.step.logs(result, training=True)
        if validation is not None:
            logs |= self._run_validation(validation, seeds, max_batches)
        self._draws_unseeded = self._draws_unseeded and _reads(self._unseeded)
        return logs

    def _run_validation(
        self, validation: Any, seeds: tf.Tensor | None, max_batches: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        result = self._run_batches(validation, None, seeds, max_batches, training=False)
        logs = self.step.logs(result, training=False)
        return {f"val_{name}": value for name, value in logs.items()}

    def _run_batches(
        self,
        rows: Any,
        order: tf.Tensor | None,
        seeds: tf.Tensor | None,
        max_batches: tf.Tensor,
        *,
        training: bool,
    ) -> Any:
        """Run all batches of a data set; return the last step's result if the step is custom."""
        step = self.step
        step.begin(training=training)
        run = self._with_preprocessing(seeds, training=training)
        num_rows = self.num_rows if training else self.num_validation_rows
        is_custom = step.has_custom_train if training else step.has_custom_test
        with contextlib.nullcontext() if self.skipped is None else self.skipped.replaced():
            if num_rows:
                reader = self._reader(rows, order)
                result = self._batches.run(run, reader, num_rows, max_batches, is_custom=is_custom)
            else:
                result, seen = self._batches.run_dataset(
                    run,
                    DatasetReader(rows, self._waited_s),
                    max_batches if training else self._all_batches,
                    is_custom=is_custom,
                )
                self._seen[0 if training else 1].assign(seen)
        step.end(training=training)
        return result

    def _with_preprocessing(self, seeds: tf.Tensor | None, *, training: bool) -> NumberedStep:
        """Return the step, preceded by the workload's per-example preprocessing."""
        step = self.step.train if training else self.step.test
        per_example = self._per_example
        seed = None if seeds is None else seeds[0 if training else 1]

        def preprocess_and_step(replica: int, batch: Any, numbers: tf.Tensor, num_rows: int) -> Any:
            if per_example is not None and seed is not None:
                batch = per_example.transform(batch, numbers, seed, training=training)
            return step(replica, batch, num_rows)

        return preprocess_and_step

    def _reader(self, rows: Any, order: tf.Tensor | None) -> Reader:
        if isinstance(rows, tf.data.Iterator):
            return StreamReader(rows, self._waited_s, self.step.replicas.window)
        return ResidentReader(rows, order)


def _compiled_or_plain(compiled: Callable[..., Any], plain: Callable[..., Any]) -> Any:
    """Return a function that XLA compiles, or the plain one once XLA fails."""
    function = compiled

    def call(*args: Any) -> Any:
        nonlocal function
        try:
            return function(*args)
        except _XLA_ERRORS as error:
            if function is plain:
                raise
            missing = _MISSING_KERNEL.search(error.message)
            reason = missing[1] if missing else error.message.partition("\n")[0][:200]
        function = plain
        result = plain(*args)  # XLA assigns no variable before all is computed
        _log.warning(
            "XLA cannot compile this model (%s), so it trains without: compile it with "
            "jit_compile=False",
            reason,
        )
        return result

    return call


def plain_metrics(logs: Mapping[str, Any]) -> Metrics:
    """Convert metrics to NumPy arrays, and scalars to floats."""
    arrays = {name: value.numpy() for name, value in logs.items()}
    return {name: float(a) if np.ndim(a) == 0 else a for name, a in arrays.items()}


def are_finite(values: Iterable[Any]) -> bool:
    """Return whether all numbers of some arrays are finite."""
    return all(np.all(np.isfinite(np.asarray(value, np.float64))) for value in values)


def _random_states() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  user code draws from it
    return random.getstate(), state[1].tobytes(), *state[2:]


def _reads(variable: Any) -> bool:
    """Return whether the graph being traced uses a variable."""
    captures = getattr(tf.compat.v1.get_default_graph(), "captures", ())
    return any(outer is variable.value.handle for outer, _ in captures)


def _initial(value: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
    """Return an initial value; None for zeros, the value of most slots, to save memory."""
    return value if np.any(value) else None
