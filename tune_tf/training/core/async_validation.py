"""Training that goes on while the epoch before is validated."""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program import Metrics, Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import scalars_of
from tune_tf.training.core.seeds import example_seeds
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.stream import Stream
from tune_tf.workload import Config, Workload

_DEVICE = "CPU:0"


class Validator:
    """Validates trials on the CPU, with programs shared by those of one structure.

    Args:
        workload: What the trials train.
        replicas: What they train on, where their rows are.
    """

    def __init__(self, workload: Workload, replicas: Replicas) -> None:
        self._replicas = replicas
        self._programs = _Programs(workload, Replicas(Devices((_DEVICE,))))
        self._trial: tuple[Config, DeviceRows, int] | None = None
        self._program: Program | None = None
        self._source: DeviceRows | None = None
        self._placed: DeviceRows | None = None

    @property
    def num_programs(self) -> int:
        """Programs that were traced."""
        return self._programs.num_programs

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial.

        Args:
            config: Its values.
            rows: Its data, with validation rows.
            seed: Of the trial.

        Raises:
            WorkloadError: They are no arrays.
        """
        if isinstance(rows.validation, Stream):
            raise WorkloadError(
                "validation.asynchronous is for arrays, but Data.validation is a Pipeline: leave "
                "validation.asynchronous out, or return arrays"
            )
        if self._placed is None or rows is not self._source:
            with tf.device(_DEVICE):
                copy = self._replicas.first_copy(rows.validation)
                validation = tf.nest.map_structure(tf.identity, copy)
            self._source, self._placed = rows, replace(rows, validation=validation)
        self._trial = config, self._programs.prepared(config, self._placed), seed
        self._program = self._programs.program_for(*self._trial)

    def metrics(self, snapshot: Checkpoint) -> Metrics:
        """Return the metrics of a snapshot on all validation rows, by names behind ``val_``."""
        if self._program is None or self._trial is None:
            raise RuntimeError("no trial was started")
        found = _validated(self._program, snapshot, self._trial[1])
        if _is_finite(found) or not self._program.num_carried:
            return found
        # A carried scalar is NaN to code that takes its number while tracing.
        self._program = self._programs.plain_program_for(*self._trial)
        return _validated(self._program, snapshot, self._trial[1])


class _Programs(GraphLoop):
    """Keeps the programs; no trial trains in them."""

    @property
    def _can_check_reuse(self) -> bool:
        return False

    def prepared(self, config: Config, rows: DeviceRows) -> DeviceRows:
        """Return a trial's rows with what it computes of them."""
        return self._per_examples.of(config, rows)

    def program_for(self, config: Config, rows: DeviceRows, seed: int) -> Program:
        """Return the program of a trial's structure, with its scalars."""
        return self._program_for(config, rows, seed)[0]

    def plain_program_for(self, config: Config, rows: DeviceRows, seed: int) -> Program:
        """Return a program of a trial's own numbers, now and for all of its structure."""
        model = self._build(config, seed, rows)
        key = self._structure(model, scalars_of(model), config, rows).key
        if key:
            self._uncarried.add(key)
        return self.program_for(config, rows, seed)


def _validated(program: Program, snapshot: Checkpoint, rows: DeviceRows) -> Metrics:
    for variable, value in zip(program.model.variables, snapshot.model, strict=True):
        variable.assign(value)
    seeds = example_seeds(snapshot.seed, snapshot.epoch) if rows.per_example else None
    return program.validate(rows.validation, seeds)


def _is_finite(metrics: Metrics) -> bool:
    return math.isfinite(metrics.get("val_loss", 0.0))


class AsyncValidationLoop:
    """Trains the next epoch while a snapshot of the last one is validated on the CPU.

    Each epoch is reported once with its own numbers, in order: they are those of validation that
    is waited for. Callbacks hear of an epoch's end when the next one has been trained, so that
    what they change takes effect, or ends the trial, one epoch later, and what they add to the
    logs is reported with that epoch. Nothing is trained ahead of an epoch that they make the last.

    Args:
        inner: What trains.
        validator: What validates.
    """

    def __init__(self, inner: GraphLoop, validator: Validator) -> None:
        self._inner = inner
        self._validator = validator
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="train_ahead")
        self._ahead: Future[Metrics] | None = None
        self._snapshot: Checkpoint | None = None  # of the epoch reported last
        self._untold: tuple[int, Metrics] | None = None  # that epoch, for the callbacks
        self._begun: tuple[Config, DeviceRows, int] | None = None  # until it is validated first

    @property
    def num_programs(self) -> int:
        """Programs that were traced."""
        return self._inner.num_programs + self._validator.num_programs

    @property
    def performance(self) -> dict[str, float]:
        """How fast the epoch trained last was, by key of a result."""
        return self._inner.performance

    @property
    def stop_training(self) -> bool:
        """Whether a callback asked to end the trial."""
        return self._inner.stop_training

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial.

        Args:
            config: The trial's values.
            rows: Its data, placed by :func:`tune_tf.training.input.device_rows.place_rows`.
            seed: Of weights, dropout and data order.

        Raises:
            WorkloadError: There are no rows to validate on.
        """
        if rows.validation is None:
            raise WorkloadError(
                "validation is asynchronous but load_data returned no validation rows: return "
                "Data(train=..., validation=...), or leave validation.asynchronous out"
            )
        self._begun = config, rows, seed
        self._snapshot = self._untold = None
        self._inner.start(config, replace(rows, validation=None, num_validation=0), seed)
        if self._inner.callbacks.watch_validation:
            raise WorkloadError(
                "a callback with on_test_begin or on_test_end changes the model around its "
                "validation, which validation.asynchronous does on a copy: leave one of them out"
            )

    def epoch(self) -> Metrics:
        """Return the metrics of the next epoch, and begin to train the one after it."""
        metrics = self._inner.train_epoch() if self._ahead is None else self._ahead.result()
        self._ahead = None
        added = self._tell()
        if self._begun is not None:  # not earlier: its first epoch finds out what can be carried
            self._validator.start(*self._begun)
            self._begun = None
        snapshot = self._inner.state()
        is_last = self.stop_training
        if not is_last:
            self._ahead = self._thread.submit(self._inner.train_epoch)
        metrics |= self._validator.metrics(snapshot)
        self._snapshot = replace(snapshot, untold=metrics)
        self._untold = snapshot.epoch - 1, metrics
        if is_last:
            added |= self._tell()
            self._inner.end_training()
            self._snapshot = None  # the callbacks have the last word on the weights
        return metrics | added

    def state(self) -> Checkpoint:
        """Return everything needed to go on after the epoch reported last."""
        if self._snapshot is not None:
            return self._snapshot
        return self._inner.state()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a state; the config of :meth:`start` wins over the checkpoint's."""
        self._wait()
        self._inner.restore(replace(checkpoint, untold=None))
        self._snapshot = self._untold = None
        if checkpoint.untold is not None:
            self._untold = checkpoint.epoch - 1, dict(checkpoint.untold)
            self._snapshot = replace(self._inner.state(), untold=checkpoint.untold)

    def finish(self) -> None:
        """End the trial, once the epoch that is being trained is over."""
        self._wait()
        self._tell(goes_on=False)
        self._inner.finish()

    def _tell(self, *, goes_on: bool = True) -> Metrics:
        """Tell the callbacks of the end of the epoch reported last; return what they add.

        They find the model as it was then. What they change in it stays, and of the rest what was
        trained since comes back if the trial goes on.
        """
        untold, self._untold = self._untold, None
        if untold is None or self._snapshot is None or self._inner.callbacks.are_none:
            return {}
        model = self._inner.model
        variables = [*model.variables, *model.optimizer.variables]
        before = [*self._snapshot.model, *self._snapshot.optimizer]
        trained = [variable.numpy() for variable in variables]
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        told = self._inner.end_epoch(*untold)
        if goes_on:
            for variable, value, since in zip(variables, before, trained, strict=True):
                if np.array_equal(variable.numpy(), value):
                    variable.assign(since)
        return {name: value for name, value in told.items() if name not in untold[1]}

    def _wait(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.exception()
