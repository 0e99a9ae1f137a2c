"""Asynchronous validation of an epoch on the CPU while the next epoch trains."""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.result_keys import Metrics
from tune_tf.training.callbacks import CallbackContext
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.epoch import TrialInputs
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program_cache import ProgramCache, TrialProgram
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.seeds import example_seeds
from tune_tf.training.core.step import ReplicaBuilder
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import STREAMS, DeviceRows
from tune_tf.workload import Config, Workload


class Validator:
    """Validator of trials on one device, with programs shared by trials of one structure.

    Rows, weights and graph are copies on ``device``; ``replicas`` hold the rows of training.
    """

    def __init__(self, workload: Workload, replicas: Replicas, device: str = "CPU:0") -> None:
        self._replicas = replicas
        self._single = Replicas(Devices((device,)))
        builder = ReplicaBuilder(workload, self._single, Mirrored())
        self._programs = ProgramCache(builder)
        self._cached: TrialProgram
        self._source: DeviceRows | None = None
        self._rows: DeviceRows  # those of the source, on the validator's device

    @property
    def num_programs(self) -> int:
        """Number of traced programs."""
        return self._programs.num_programs

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial; refuse validation rows that are not arrays."""
        if isinstance(rows.validation, STREAMS):
            raise WorkloadError(
                "validation.asynchronous needs arrays, but Data.validation is a Pipeline or a data "
                "set: leave validation.asynchronous out, or return arrays"
            )
        if rows is not self._source:
            validation = self._single.place(self._replicas.first_copy(rows.validation))
            self._source, self._rows = rows, replace(rows, validation=validation)
        self._cached = self._programs.find(TrialInputs(config, self._rows, seed))

    def metrics(self, snapshot: Checkpoint) -> Metrics:
        """Return a snapshot's metrics on all validation rows, with the prefix ``val_``."""
        metrics = _validate(self._cached, snapshot)
        if math.isfinite(metrics.get("val_loss", 0.0)) or not self._cached.program.traces_scalars:
            return metrics
        # Code that reads a traced scalar's value while tracing gets NaN.
        self._cached = self._programs.replace_by_plain(self._cached)
        return _validate(self._cached, snapshot)


def _validate(cached: TrialProgram, snapshot: Checkpoint) -> Metrics:
    program, rows = cached.program, cached.inputs.rows
    for variable, value in zip(program.model.variables, snapshot.model, strict=True):
        variable.assign(value)
    seeds = example_seeds(snapshot.seed, snapshot.epoch) if rows.per_example else None
    return program.validate(rows.validation, seeds)


class AsyncValidationLoop:
    """Loop that trains the next epoch while a snapshot of the last one is validated on the CPU.

    Each epoch is reported once, in order, with the numbers of synchronous validation.
    ``on_epoch_end`` is called after the next epoch has been trained. A callback's changes and its
    request to stop take effect one epoch later, and its additions to the logs are reported with
    that later epoch. No further epoch is trained after a request to stop.
    """

    def __init__(self, inner: GraphLoop, validator: Validator) -> None:
        self._inner = inner
        self._validator = validator
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="train_ahead")
        self._next_epoch: Future[Metrics] | None = None
        self._snapshot: Checkpoint | None = None  # of the last reported epoch, until on_epoch_end
        self._epoch_state: Checkpoint | None = None  # likewise, until the next one
        self._unvalidated_trial: TrialInputs | None = None  # until its first validation

    @property
    def num_programs(self) -> int:
        """Number of traced programs of training and validation."""
        return self._inner.num_programs + self._validator.num_programs

    @property
    def performance(self) -> dict[str, Any]:
        """Speed of the last trained epoch, by result key."""
        return self._inner.performance

    @property
    def cost(self) -> float:
        """Seconds of an epoch on a reference processor, from its operations alone."""
        return self._inner.cost

    @property
    def callback_context(self) -> CallbackContext:
        """Context of the callbacks of the next trial."""
        return self._inner.callback_context

    @callback_context.setter
    def callback_context(self, context: CallbackContext) -> None:
        self._inner.callback_context = context

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""
        return self._inner.stop_training

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial; refuse one without validation rows, and callbacks' validation hooks."""
        if rows.validation is None:
            raise WorkloadError(
                "validation is asynchronous but load_data returned no validation rows: return "
                "Data(train=..., validation=...), or leave validation.asynchronous out"
            )
        self._unvalidated_trial = TrialInputs(config, rows, seed)
        self._snapshot = self._epoch_state = None
        self._inner.start(config, replace(rows, validation=None, num_validation=0), seed)
        if names := self._inner.trial.callbacks.watch_validation:
            raise WorkloadError(
                f"{names} has on_test_begin or on_test_end, which are called around validation, "
                "but validation.asynchronous validates a copy: leave one of them out"
            )

    def epoch(self) -> Metrics:
        """Return the metrics of the next epoch and start training the one after it."""
        future, self._next_epoch = self._next_epoch, None
        metrics = future.result() if future else self._inner.train_epoch()
        added = self._notify_callbacks()
        if self._unvalidated_trial is not None:  # the first epoch decides on traced scalars
            self._validator.start(*self._unvalidated_trial)
            self._unvalidated_trial = None
        snapshot = self._inner.state()
        is_last = self.stop_training
        if not is_last:
            self._next_epoch = self._thread.submit(self._inner.train_epoch)
        metrics |= self._validator.metrics(snapshot)
        self._snapshot = replace(snapshot, pending_metrics=metrics)
        self._epoch_state = self._snapshot
        if is_last:
            added |= self._notify_callbacks()
            self._inner.trial.callbacks.train_end()
        return metrics | added

    def state(self) -> Checkpoint:
        """Return a checkpoint of the last reported epoch."""
        return self._snapshot or self._inner.state()

    def epoch_state(self) -> Checkpoint:
        """Return the state that the metrics of the last reported epoch belong to."""
        return self._epoch_state or self.state()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint; the config of :meth:`start` overrides the checkpoint's."""
        self._wait()
        self._epoch_state = None
        self._inner.restore(replace(checkpoint, pending_metrics=None))
        self._snapshot = None
        if checkpoint.pending_metrics is not None:
            pending_metrics = dict(checkpoint.pending_metrics)
            self._snapshot = replace(self._inner.state(), pending_metrics=pending_metrics)

    def finish(self) -> None:
        """End the trial once the epoch in training has finished."""
        self._wait()
        self._notify_callbacks(continues=False)
        self._inner.finish()

    def _notify_callbacks(self, *, continues: bool = True) -> Metrics:
        """Call ``on_epoch_end`` for the last reported epoch; return the metrics that callbacks add.

        Callbacks see the model after that epoch. Variables that they change keep the new values; if
        the trial continues, the others get their later trained values back.
        """
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None or snapshot.pending_metrics is None:
            return {}
        metrics, trial = dict(snapshot.pending_metrics), self._inner.trial
        if trial.callbacks.is_empty:
            return {}
        model = trial.program.model
        variables = [*model.variables, *model.optimizer.variables]
        before = [*snapshot.model, *snapshot.optimizer]
        trained = [variable.numpy() for variable in variables]
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        logs = trial.callbacks.epoch_end(snapshot.epoch - 1, metrics)
        if continues:
            for variable, value, later in zip(variables, before, trained, strict=True):
                if np.array_equal(variable.numpy(), value):
                    variable.assign(later)
        return {name: value for name, value in logs.items() if name not in metrics}

    def _wait(self) -> None:
        future, self._next_epoch = self._next_epoch, None
        if future is not None:
            future.exception()
