"""Epoch of a trial's model as one graph call."""

import contextlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.result_keys import Metrics
from tune_tf.training.epoch import BatchLoop, EpochInputs, NumberedStep
from tune_tf.training.frozen.frozen_outputs import SkippedLayers
from tune_tf.training.graph import EpochGraph, GraphCache, refuse_new_variables
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.reader import Reader, ResidentReader, StreamReader
from tune_tf.training.keras_internals import (
    global_seed_generator,
    parts_of_variable,
    unregister_new_gradients,
)
from tune_tf.training.process_state import seeded_graph
from tune_tf.training.scalars import Scalar, scalars_of
from tune_tf.training.step import Step, trains_by_workload
from tune_tf.training.structure import Structure, structure_of
from tune_tf.training.traced_scalar import TracedScalars
from tune_tf.workload import Config, Workload


class Program:
    """Training and validation of a trial's model, one epoch as one graph call.

    The graph is that of an earlier trial whose model has the same structure, or traced anew.

    Args:
        workload: The workload of the trial.
        step: Step that trains the trial's model.
        rows: Rows of the trial, for their number and a sample.
        batch_size: Rows of one gradient update and of one validation batch.
    """

    def __init__(self, workload: Workload, step: Step, rows: DeviceRows, batch_size: int) -> None:
        self._workload = workload
        self.step = step
        self.model = model = step.model
        self.batch_size = batch_size
        self.num_rows = rows.num_train
        self.num_validation_rows = rows.num_validation
        self._per_example = rows.per_example
        #: Frozen layers whose outputs are the inputs of the rows; None for the rows' own.
        self.skipped: SkippedLayers | None = None
        replicas = step.replicas
        with refuse_new_variables(replicas.num):
            step.build(rows.sample)
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
        #: Graph of the epoch; None until the first one.
        self.graph: EpochGraph | None = None
        #: Code of the user's that the graph runs, so that it was traced for this trial.
        self.own_code = ""
        #: Whether the graph was traced by an earlier trial.
        self.is_shared = False
        with tf.device("CPU:0"):
            self._all_batches = tf.constant(tf.int32.max)
        #: Scalars that the graph reads at every call, each in all copies of the model.
        self.scalars: list[list[Scalar]] = []
        #: Resources of the model's variables, in an order that equal structures share.
        self.handles: list[Any] = []
        self._variables: list[Any] = []  # of these handles
        self._others: list[np.ndarray[Any, Any]] | None = None

    @property
    def num_seen(self) -> tuple[int, int]:
        """Numbers of batches and rows of a data set in the last epoch."""
        batches, rows = self._used_graph.seen.numpy()
        return int(batches), int(rows)

    @property
    def _used_graph(self) -> EpochGraph:
        if self.graph is None:
            raise RuntimeError("no epoch has begun")
        return self.graph

    def structure(self, config: Config, rows: DeviceRows) -> Structure:
        """Return what the graph depends on, beside the variables and the traced scalars."""
        step, workload = self.step, self._workload
        name = type(workload).__name__
        if trains_by_workload(workload):
            return Structure(None, (), f"{name}.train_step")
        if self._per_example is not None:
            return Structure(None, (), f"{name}.per_example")
        skipped = self.skipped and self.skipped.key
        batch = (rows.spec, self.batch_size, step.replicas.shape, step.micro_batches, skipped)
        roots = [*step.copies, repr((batch, self.jit_compile, workload.structure(config)))]
        return structure_of(roots, (scalar for copies in self.scalars for scalar in copies))

    def prepare(
        self, graphs: GraphCache, config: Config, rows: DeviceRows, skipped: SkippedLayers | None
    ) -> None:
        """Find the graph of the model as it is now, before the first epoch.

        Args:
            graphs: Graphs of earlier trials.
            config: Config of the trial.
            rows: Its rows.
            skipped: Frozen layers that the graph leaves out.
        """
        self.release()
        self.skipped = skipped
        rows = skipped.rows if skipped else rows
        self.jit_compile = self.jit_compile and not rows.is_streamed
        by_copy = [scalars_of(copy) for copy in self.step.copies]
        self.scalars = [list(each) for each in zip(*by_copy, strict=True)]
        structure = self.structure(config, rows)
        self.own_code = structure.obstacle
        if self.own_code:
            global_seed_generator()  # replicas cannot create its state
        self._variables = [part for each in structure.variables for part in parts_of_variable(each)]
        self.handles = [each.handle for each in self._variables]
        replicas = self.step.replicas
        self.graph, self.is_shared = graphs.find(structure.key, self.numbers, replicas)

    def release(self) -> None:
        """Let the graph go, which other trials may use."""
        if self.graph is not None:
            self.graph.release()
            self.graph = None

    @property
    def numbers(self) -> list[float]:
        """Current values of the scalars."""
        return [copies[0].value for copies in self.scalars]

    def epoch(self, inputs: EpochInputs) -> Metrics:
        """Train on every row once in the given order, then validate; return Keras' metrics."""
        train, validation, order, seeds, limit = inputs
        max_batches = self._all_batches if limit is None else tf.constant(limit)
        graph = self._used_graph
        order, seeds = (a if a is None else tf.constant(a) for a in (order, seeds))
        name = "training" if validation is None else "training and validation"
        args = (train, validation, order, seeds, max_batches)
        graph.trace(name, self, self._run_epoch, *args)
        self._restore_others()
        return plain_metrics(graph.run(name, self, self._run_epoch, *args))

    def validate(self, validation: Any, seeds: "np.ndarray[Any, Any] | None" = None) -> Metrics:
        """Validate without training and return metrics like :meth:`epoch`."""
        args = (validation, seeds if seeds is None else tf.constant(seeds), self._all_batches)
        return plain_metrics(self._used_graph.run("validation", self, self._run_validation, *args))

    def others(self) -> "list[np.ndarray[Any, Any]]":
        """Return the values of variables of the graph that are not the model's."""
        if self._others is not None:
            return self._others
        return [variable.numpy() for variable in self._other_variables()[0]]

    def set_others(self, values: "list[np.ndarray[Any, Any]]") -> None:
        """Set them, once the trace has found them."""
        self._others = values

    def _restore_others(self) -> None:
        values, self._others = self._others, None
        for of_replica in self._other_variables():
            for variable, value in zip(of_replica, values or (), strict=False):
                if tuple(variable.shape) == value.shape:
                    variable.assign(value)

    def _other_variables(self) -> list[list[Any]]:
        """Return those variables by replica, each in the order in which the trace met them."""
        by_replica: list[list[Any]] = [[] for _ in range(self.step.replicas.num)]
        if self.graph is None or len(self.step.copies) > 1:
            return by_replica
        model = self.model
        known = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        handles = {id(part.handle) for each in known for part in parts_of_variable(each)}
        for variable in (*self.graph.others, *self._variables):
            if id(variable.handle) in handles:
                continue
            handles.add(id(variable.handle))
            copy = re.search(r"/replica_(\d+):0$", variable.name)  # as TensorFlow names it
            number = int(copy[1]) if copy else 0
            by_replica[number if number < len(by_replica) else 0].append(variable)
        return by_replica

    def graph_function(
        self, body: Callable[..., Any], *, jit_compile: bool = False, **options: Any
    ) -> Any:
        """Return a function that runs as a graph of this model alone."""
        traced = partial(self.trace, body, TracedScalars())
        return tf.function(traced, autograph=False, jit_compile=jit_compile or None, **options)

    def trace(self, body: Callable[..., Any], scalars: TracedScalars, *args: Any) -> Any:
        """Call a function that is being traced."""
        with (
            self.step.replicas.device_scope(),
            scalars.in_graph(self.scalars),
            unregister_new_gradients(),
            refuse_new_variables(self.step.replicas.num),
            seeded_graph(),
        ):
            return body(*args)

    def _run_epoch(
        self,
        train: Any,
        validation: Any,
        order: tf.Tensor | None,
        seeds: tf.Tensor | None,
        max_batches: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        result = self._run_batches(train, order, seeds, max_batches, training=True)
        logs = self.step.logs(result, training=True)
        if validation is not None:
            logs |= self._run_validation(validation, seeds, max_batches)
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
        """Run all batches of a data set; return the last step's result if that ``has_logs``."""
        step, graph = self.step, self._used_graph
        step.begin(training=training)
        run = self._with_preprocessing(seeds, training=training)
        num_rows = self.num_rows if training else self.num_validation_rows
        has_logs, is_custom = step.has_logs(training=training), step.is_custom(training=training)
        skipped = self.skipped
        with skipped.layers.skipped(skipped.has_mask) if skipped else contextlib.nullcontext():
            if num_rows:
                reader = self._reader(rows, order)
                result = self._batches.run(
                    run, reader, num_rows, max_batches, has_logs=has_logs, whole=is_custom
                )
            else:
                result, seen = self._batches.run_dataset(
                    run,
                    rows,
                    max_batches if training else self._all_batches,
                    has_logs=has_logs,
                    whole=is_custom,
                )
                if training:
                    graph.seen.assign(seen)
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
            return StreamReader(rows)
        return ResidentReader(rows, order)


def plain_metrics(logs: Mapping[str, Any]) -> Metrics:
    """Convert metrics to NumPy arrays, and scalars to floats."""
    arrays = {name: value.numpy() for name, value in logs.items()}
    return {name: float(a) if np.ndim(a) == 0 else a for name, a in arrays.items()}
