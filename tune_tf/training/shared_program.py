"""A model on parameter servers of TensorFlow's, and the step that its workers do."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.batch_dealer import DealerStatistics
from tune_tf.training.errand import Array
from tune_tf.training.gradient_program import GradientProgram
from tune_tf.training.graph_nodes import nodes_of
from tune_tf.training.update_program import scaled

_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


class _Batch(NamedTuple):
    """What a batch does, in a graph; values are those of variables that have a gradient."""

    values: list[Any]
    moves: list[tf.Tensor]
    metrics: list[tf.Tensor]
    counters: list[tf.Tensor]


class SharedProgram(GradientProgram):
    """A model whose variables are shared: workers read them, and update them one at a time.

    An update holds a lock, which is TensorFlow's ``CriticalSection``: otherwise two workers would
    read the same moments and one update would be lost. Under the lock it is decided, too, whether
    the gradient is too old, and whether the batch was done before.

    Args:
        given: The arguments of :class:`GradientProgram`; ``replicas`` are
            :class:`~tune_tf.training.strategy_replicas.StrategyReplicas`.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._num_batches = -(-self._num_rows // self._batch_size)
        self._there: list[int] = []  # of the trainable variables, those with a gradient
        with self.replicas.scope():
            self._lock = tf.CriticalSection(name="updates")
            self._epoch_number = _whole(0)
            self._version = _whole(0)
            self._max_staleness = _whole(0)
            self._late = _whole(0)
            self._applied = _whole(np.zeros(self._num_batches))
            self._stale = _whole(np.zeros(self._num_batches))
            self._staleness = _whole(np.zeros(self._num_batches))
        self.step = self._traced(self._run_step)
        self._trial_step = self._traced(self._run_rehearsal)

    def rehearse(self, train: Any) -> bool:
        """Try a batch's gradient in this process; as in :class:`GradientProgram`.

        All that the workers will do is traced here.
        """
        before = self._counters()
        number = tf.constant(0, tf.int64)
        for size in {min(self._batch_size, self._num_rows), self._num_rows % self._batch_size}:
            if size:
                batch = tf.nest.map_structure(lambda a, n=size: a[:n], train)
                begun = [tf.constant(value) for value in before]
                with self.replicas.scope():  # as the coordinator calls it
                    step = self.step.get_concrete_function(batch, begun, number, number)
                self._refuse_python(step)
        batch = tf.nest.map_structure(lambda a: a[: self._batch_size], train)
        finite, after = self._trial_step(batch, before)
        self._increments = [new.numpy() - first for new, first in zip(after, before, strict=True)]
        return bool(finite)

    def begin(self, epoch: int, source: keras.Model, max_staleness: int) -> None:
        """Begin an epoch with the values of another model of the same structure.

        Args:
            epoch: Its number, another one for each.
            source: The model.
            max_staleness: Updates that a gradient may be behind.
        """
        for to, value in zip(_state_of(self.model), _state_of(source), strict=True):
            to.assign(value.numpy())
        self.model.reset_metrics()
        self._max_staleness.assign(max_staleness)
        for variable in (self._applied, self._stale, self._staleness):
            variable.assign(np.zeros(self._num_batches))
        self._late.assign(0)
        self._epoch_number.assign(epoch)

    def left(self) -> list[int]:
        """Return the batches of the epoch that have not been applied."""
        return [int(i) for i in np.flatnonzero(self._applied.numpy() == 0)]

    def end(self, target: keras.Model) -> DealerStatistics:
        """Close the epoch: hand the values, metrics too, to another model."""
        self._epoch_number.assign(0)  # what is still under way comes too late
        for to, value in zip(_state_of(target), _state_of(self.model), strict=True):
            to.assign(value.numpy())
        for to, value in zip(target.metrics_variables, self.model.metrics_variables, strict=True):
            to.assign(value.numpy())
        return DealerStatistics(
            [int(each) for each in self._staleness.numpy()],
            int(self._stale.numpy().sum()),
            int(self._late.numpy()),
        )

    def counters(self) -> list[list[Array]]:
        """Return the counters that each batch begins with, by those at the epoch's begin."""
        begun = list(zip(self._counters(), self._increments, strict=True))
        return [
            [value + np.asarray(batch, value.dtype) * increment for value, increment in begun]
            for batch in range(self._num_batches)
        ]

    def _run_step(
        self, batch: Any, counters: list[tf.Tensor], number: tf.Tensor, epoch: tf.Tensor
    ) -> None:
        """Compute the gradient of a batch and update by it; what a worker runs."""
        version = self._version.read_value()
        with tf.control_dependencies([version]):
            batch = tf.nest.map_structure(tf.identity, batch)
        done = self.replicas.run(self._computed, batch, counters)

        def update() -> tf.Tensor:
            with tf.control_dependencies(tf.nest.flatten(done.values, expand_composites=True)):
                staleness = self._version.read_value() - version
            is_new = tf.logical_and(
                tf.equal(self._epoch_number, epoch), tf.equal(self._applied[number], 0)
            )
            return tf.cond(
                is_new,
                lambda: tf.cond(
                    staleness <= self._max_staleness,
                    lambda: self._update(done, number, staleness),
                    lambda: _add(self._stale, number, 1),
                ),
                lambda: _counted(self._late),
            )

        self._lock.execute(update)

    def _update(self, done: _Batch, number: tf.Tensor, staleness: tf.Tensor) -> tf.Tensor:
        model = self.model
        trainable = model.trainable_variables

        def apply(values: list[Any]) -> None:
            by_index = dict(zip(self._there, values, strict=True))
            scale = getattr(model.optimizer, "dynamic_scale", None)
            whole = [scaled(by_index.get(i), v, scale) for i, v in enumerate(trainable)]
            self._apply(whole, trainable)

        self.replicas.run(apply, done.values)
        for (index, decay), move in zip(self.roles.statistics, done.moves, strict=True):
            statistic = model.variables[index]
            statistic.assign(tf.cast(decay, move.dtype) * statistic + move)
        for metric, counted in zip(model.metrics_variables, done.metrics, strict=True):
            metric.assign(metric + counted)
        _add(self._staleness, number, staleness)
        _counted(self._version)
        return _add(self._applied, number, 1)

    def _computed(self, batch: Any, counters: list[tf.Tensor]) -> _Batch:
        """Return what a batch does, without doing it."""
        model = self.model
        variables = model.variables
        of_counters = [variables[i] for i in self.roles.counters]
        self._caught = None
        with _Scope(model, dict(zip(self.roles.counters, counters, strict=True))) as scope:
            model.reset_metrics()
            begun = [tf.convert_to_tensor(each) for each in model.metrics_variables]
            logs = self._train(0, batch, tf.nest.flatten(batch)[0].shape[0])
            if self._own_train_step:
                self._check_logs(logs)
        moves = []
        for index, decay in self.roles.statistics:
            old = tf.convert_to_tensor(variables[index])
            new = tf.convert_to_tensor(scope.get_current_value(variables[index]))
            moves.append(new - tf.cast(decay, old.dtype) * old)
        values = self._unscaled(self._taken())
        self._there = [i for i, value in enumerate(values) if value is not None]
        return _Batch(
            [values[i] for i in self._there],
            moves,
            [
                tf.convert_to_tensor(scope.get_current_value(metric)) - first
                for metric, first in zip(model.metrics_variables, begun, strict=True)
            ],
            [tf.convert_to_tensor(scope.get_current_value(each)) for each in of_counters],
        )

    def _run_rehearsal(self, batch: Any, counters: list[tf.Tensor]) -> tuple[Any, Any]:
        done = self.replicas.run(self._computed, batch, counters)
        parts = [
            part.values if isinstance(part, tf.IndexedSlices) else part for part in done.values
        ]
        finite = [tf.reduce_all(tf.math.is_finite(part)) for part in parts]
        return tf.reduce_all(finite), done.counters

    def _refuse_python(self, step: Any) -> None:
        if found := {node.op for node in nodes_of(step.graph)} & _PYTHON:
            raise WorkloadError(
                f"the training step of {type(self._workload).__name__} or its model calls Python "
                f"({', '.join(sorted(found))}: tf.numpy_function or tf.py_function), which "
                "TensorFlow's workers cannot do for another process: leave it out, or use "
                "backend='actors'"
            )

    def _check_logs(self, logs: Any) -> None:
        self._logs_of(logs)
        own = self.model.get_metrics_result().keys()
        if own != logs.keys():
            raise WorkloadError(
                f"the train_step of {type(self._workload).__name__} or its model returns "
                f"{', '.join(logs)}, and workers of the backend 'parameter_server_strategy' report "
                f"what the model's metrics count only ({', '.join(own)}): return "
                "model.get_metrics_result(), or use backend='actors'"
            )


class _Scope(keras.StatelessScope):
    """Keeps what is assigned to the variables of a model away from the others that share them.

    Args:
        model: The model.
        values: What variables begin with, by index; the others with their own values.
    """

    def __init__(self, model: keras.Model, values: dict[int, tf.Tensor]) -> None:
        variables = [*model.variables, *model.metrics_variables]
        self._own = {id(variable): variable.value for variable in variables}
        super().__init__([(variables[index], value) for index, value in values.items()])

    def get_current_value(self, variable: Any) -> Any:
        """Return what was assigned; else the variable, for a tape to see that it is read."""
        value = super().get_current_value(variable)
        return self._own.get(id(variable)) if value is None else value


def _state_of(model: keras.Model) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _whole(value: Any) -> tf.Variable:
    return tf.Variable(value, dtype=tf.int64, trainable=False)


def _counted(variable: tf.Variable) -> tf.Tensor:
    return tf.identity(variable.assign_add(1))


def _add(variable: tf.Variable, index: tf.Tensor, value: Any) -> tf.Tensor:
    row = tf.one_hot(index, variable.shape[0], dtype=tf.int64) * tf.cast(value, tf.int64)
    return tf.reduce_sum(tf.identity(variable.assign_add(row)))
