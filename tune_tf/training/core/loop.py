"""Training loop that runs epochs as graph calls and reuses traced programs across trials."""

import abc
import logging
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.result_keys import INPUT_WAIT, ROWS_PER_S, Metrics
from tune_tf.space import flat
from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.core.batch_norm import (
    synchronize,
    warn_of_local_statistics,
    warn_of_micro_batches,
)
from tune_tf.training.core.build import build_model
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.program import BatchSettings, Inputs, Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import LearningRate, Scalar, learning_rate, scalars_of
from tune_tf.training.core.seeds import (
    epoch_order,
    example_seeds,
    preserve_global_rng,
    unseeded_state,
)
from tune_tf.training.core.step import has_own_train_step
from tune_tf.training.core.structure import program_fingerprint
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.per_example import PerExamples
from tune_tf.training.input.stream import Stream
from tune_tf.training.reuse import reuse_check
from tune_tf.training.reuse.fingerprint import Fingerprint
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadReset
from tune_tf.workload import Config, Workload

_log = logging.getLogger(__name__)


_EAGER_CHECKS = 2  # number of programs that a loop compares with eager execution


class Loop(Protocol):
    """Interface of training loops."""

    @property
    def num_programs(self) -> int:
        """Number of traced programs."""

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""

    @property
    def performance(self) -> dict[str, float]:
        """Speed of the last epoch, by result key."""

    def start(self, config: Config, rows: Any, seed: int) -> None:
        """Begin a trial."""

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""

    def state(self) -> Checkpoint:
        """Return a checkpoint of the trial."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint; the config of :meth:`start` overrides the checkpoint's."""

    def finish(self) -> None:
        """End the trial."""


@dataclass
class LoopTrial:
    """State of a trial in a loop."""

    config: Config
    rows: DeviceRows
    seed: int
    program: Program
    callbacks: EpochCallbacks
    key: str | None
    is_first_run: bool
    initial_rate: LearningRate
    structure: str | None = None  # of the model, if callbacks may change it
    epoch: int = 0
    restored: Checkpoint | None = None  # start of the first epoch, if restored


class GraphLoop:
    """Loop that runs each epoch as one graph call, with programs shared by trials of one structure.

    Args:
        workload: The workload of the trials.
        replicas: The replicas to train on.
        parallelism: Batch settings for as many replicas as ``replicas``.
    """

    program_class: type[Program] = Program

    def __init__(
        self,
        workload: Workload,
        replicas: Replicas,
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
    ) -> None:
        self._workload = workload
        self._replicas = replicas
        self._parallelism = parallelism
        self._per_examples = PerExamples(workload)
        self._workload_state = WorkloadReset.of(workload)
        self._programs: dict[str, list[Program]] = {}
        self._plain_structures: set[str] = set()  # structures that fail with traced scalars
        self._unshared: set[str] = set()  # structures whose reuse check failed
        self._checks_reuse = reuse_check.is_enabled() and self._can_check_reuse
        self._trial: LoopTrial | None = None
        self.num_programs = 0
        #: Speed of the last epoch, by result key.
        self.performance: dict[str, float] = {}

    @property
    def is_training(self) -> bool:
        """Whether a trial has begun and not ended."""
        return self._trial is not None

    @property
    def _can_check_reuse(self) -> bool:
        """Whether this process can run an epoch eagerly without other processes."""
        return self.program_class is Program and type(self._replicas) is Replicas

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""
        return bool(self._current.program.model.stop_training)

    @property
    def _current(self) -> LoopTrial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial with fresh seeded weights, in a matching traced program if one exists.

        ``rows`` come from :func:`tune_tf.training.input.device_rows.place_rows`; ``seed`` is for
        weights, dropout and data order.
        """
        trial = self._trial = self._prepare(config, rows, seed)
        if trial.key is None or not trial.callbacks.may_change_model:
            trial.callbacks.train_begin()
            return
        trial.structure = trial.program.structure()
        trial.callbacks.train_begin()
        # A callback changed the model (by freezing a layer, say), or it cannot be compared.
        if trial.structure is None or trial.program.structure() != trial.structure:
            self._unshare(trial.program, trial.key)
            trial.program.retrace()
            trial.key = None

    def _prepare(self, config: Config, rows: DeviceRows, seed: int) -> LoopTrial:
        """Return a trial whose callbacks have not begun."""
        rows = self._per_examples.of(config, rows)
        program, key, is_first = self._program_for(config, rows, seed)
        callbacks = self._callbacks(config, rows, program.model)
        rate = learning_rate(program.model)
        return LoopTrial(config, rows, seed, program, callbacks, key, is_first, rate)

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        metrics = self.train_epoch()
        metrics = self.end_epoch(self._current.epoch - 1, metrics)
        if self.stop_training:
            self.end_training()
        return metrics

    def train_epoch(self) -> Metrics:
        """Run one epoch without calling ``on_epoch_end``."""
        trial = self._current
        trial.callbacks.epoch_begin(trial.epoch)
        began = time.perf_counter()
        metrics = self._run_guarded(trial)
        took_s = time.perf_counter() - began
        self.performance = {
            ROWS_PER_S: trial.rows.num_train / took_s,
            INPUT_WAIT: min(1.0, trial.program.waited_s / took_s),
        }
        trial.epoch += 1
        return metrics

    def end_epoch(self, epoch: int, metrics: Metrics) -> Metrics:
        """Call ``on_epoch_end`` with an epoch counted from 0; return the metrics it leaves."""
        return self._current.callbacks.epoch_end(epoch, metrics)

    def end_training(self) -> None:
        """Call ``on_train_end``."""
        self._current.callbacks.train_end()

    @property
    def model(self) -> Any:
        """Model of the trial."""
        return self._current.program.model

    @property
    def callbacks(self) -> EpochCallbacks:
        """Callbacks of the trial."""
        return self._current.callbacks

    def state(self) -> Checkpoint:
        """Return a checkpoint of the trial."""
        trial = self._current
        return Checkpoint.of(
            trial.program.model,
            epoch=trial.epoch,
            seed=trial.seed,
            config=trial.config,
            initial_rate=trial.initial_rate,
            callbacks=trial.callbacks.state(),
            has_ended=trial.callbacks.have_ended,
            needs_data=WorkloadCopies.of(self._workload).has_loaded,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint, also from one with another number of replicas.

        Raises:
            CheckpointError: The checkpoint's model has another structure.
        """
        trial = self._current
        self._load(checkpoint, trial)
        trial.program.model.stop_training = False
        trial.epoch = checkpoint.epoch
        trial.seed = checkpoint.seed
        trial.restored = checkpoint if trial.is_first_run else None
        if checkpoint.pending_metrics is not None:
            trial.callbacks.epoch_end(checkpoint.epoch - 1, dict(checkpoint.pending_metrics))

    def finish(self) -> None:
        """End the trial."""
        if self._trial is not None:
            self._trial.callbacks.train_end()
            trial, self._trial = self._trial, None
            if trial.structure and trial.program.structure() != trial.structure:
                self._unshare(trial.program, trial.key)  # callbacks changed its model

    def _program_for(
        self, config: Config, rows: DeviceRows, seed: int
    ) -> tuple[Program, str | None, bool]:
        """Return a trial's program, its key and whether it is new."""
        model = self._build(config, seed, rows)
        scalars = scalars_of(model)
        found = self._structure(model, scalars, config, rows)
        self._workload_state.refuse_trained_variables(found.variables)
        if found.key in self._plain_structures:
            scalars = []
            found = self._structure(model, scalars, config, rows)
        for program in self._programs.get(found.key or "", ()):
            if program.serves(scalars):
                program.take_over(model, found.variables, scalars)
                return self._check_reuse(program, _FreshModel(model, found, config, rows, seed))
        if found.key is None:
            scalars = []
            _log.info("Retracing this trial: %s", found.obstacle)
        program = self._make_program(model, scalars, config, rows, found)
        self._share(program, found.key, config)
        return program, found.key, True

    def _check_reuse(
        self, program: Program, fresh: "_FreshModel"
    ) -> tuple[Program, str | None, bool]:
        """Return a reused program, or a new one if a fresh model gives different numbers.

        The check runs at the first reuse and whenever a parameter changes for the first time.
        """
        record, key = program.reuse, fresh.found.key
        if record is None or fresh.rows.is_streamed or not self._checks_reuse:
            return program, key, False
        parameters = record.unchecked(flat(fresh.config))
        if parameters is None:
            return program, key, False
        try:
            with preserve_global_rng():
                traced, differences = self._try_reuse(program, fresh)
        except tf.errors.ResourceExhaustedError:  # two models do not fit
            _log.info("Skipping the check of a reused program: not enough memory")
            differences = []
        if not differences:
            record.note(parameters)
            return program, key, False
        self._unshare(program, key)
        self._unshared.add(key or "")
        _log.warning(
            reuse_check.difference_report(type(self._workload).__name__, parameters, differences)
        )
        return traced, None, True

    def _try_reuse(self, program: Program, fresh: "_FreshModel") -> tuple[Program, list[str]]:
        """Return a fresh program and its differences from a reused one."""
        config, rows, seed = fresh.config, fresh.rows, fresh.seed
        inputs = self._inputs(config, rows, seed, 0)
        eager = self._new_program(fresh.model, [], config, rows, fresh.found)
        if not reuse_check.differs_from_eager(program, eager, inputs):
            return eager, []
        model = self._build(config, seed, rows)
        found = self._structure(model, [], config, rows)
        traced = self._make_program(model, [], config, rows, found)
        return traced, reuse_check.compare_programs(program, traced, inputs)

    def _share(self, program: Program, key: str | None, config: Config) -> None:
        if key is not None and key not in self._unshared:
            program.reuse = ReuseRecord(flat(config))
            self._programs.setdefault(key, []).append(program)

    def _unshare(self, program: Program, key: str | None) -> None:
        if key is not None and program in self._programs.get(key, ()):
            self._programs[key].remove(program)

    def _load(self, checkpoint: Checkpoint, trial: LoopTrial) -> None:
        checkpoint.load_into(trial.program.model, trial.initial_rate)
        trial.callbacks.restore(checkpoint.callbacks)

    def _run_guarded(self, trial: LoopTrial) -> Metrics:
        """Run an epoch; stop sharing a program whose trace contains state of this trial."""
        if not trial.is_first_run:
            return self._run(trial)
        trial.is_first_run = False
        metrics = self._first_run(trial)
        if trial.program.unshareable_reason is not None:
            _log.info("Not sharing this program: %s", trial.program.unshareable_reason)
            self._unshare(trial.program, trial.key)
            trial.key = None
        return metrics

    def _first_run(self, trial: LoopTrial) -> Metrics:
        """Run a new program; fall back to plain floats if traced scalars do not work.

        Code that reads a traced scalar's value while tracing gets NaN. One batch of the program is
        therefore compared with eager execution, which uses plain floats. If the results differ, or
        the epoch fails or is not finite, it runs again with plain floats from the same seed.
        """
        if not (trial.key and trial.program.num_traced_scalars):
            return self._run(trial)
        try:
            differs = self._differs_eagerly(trial)
            metrics = self._run(trial)
        except (tf.errors.ResourceExhaustedError, MemoryError):
            raise  # the plain program needs as much memory
        except Exception as error:  # noqa: BLE001  the plain program raises it too
            _log.debug("the program with traced scalars failed: %s", error)
            metrics = None
        if metrics is None or differs or not _is_finite(metrics):
            metrics = self._retry_plain(trial, traced_metrics=metrics)
        trial.restored = None
        return metrics

    def _differs_eagerly(self, trial: LoopTrial) -> bool:
        """Return whether a program may differ from eager execution on one batch.

        The first programs suffice, since misuse of a traced scalar is a property of the code. A
        custom ``train_step`` is not checked: its first call may create objects for later calls.
        """
        program = trial.program
        if self.num_programs > _EAGER_CHECKS or has_own_train_step(self._workload, program.model):
            return False
        if trial.rows.is_streamed or not self._checks_reuse:
            return False
        inputs = self._inputs(trial.config, trial.rows, trial.seed, trial.epoch)
        try:
            with preserve_global_rng():
                return reuse_check.differs_from_eager(program, program, inputs, aggregate=True)
        except tf.errors.ResourceExhaustedError:  # a graph may need less memory
            return False

    def _retry_plain(self, trial: LoopTrial, *, traced_metrics: Metrics | None) -> Metrics:
        model = self._build(trial.config, trial.seed, trial.rows)
        found = self._structure(model, [], trial.config, trial.rows)
        traced, traced_key = trial.program, trial.key
        trial.program = self._make_program(model, [], trial.config, trial.rows, found)
        trial.callbacks.have_ended = True  # no on_train_end: the trial begins again
        trial.callbacks = self._callbacks(trial.config, trial.rows, model)
        trial.callbacks.train_begin()
        if trial.restored is not None:
            self._load(trial.restored, trial)
        trial.callbacks.epoch_begin(trial.epoch)
        plain = self._run(trial)
        if traced_metrics is not None and _nearly_equal(plain, traced_metrics):
            return plain  # traced scalars are not the cause
        self._unshare(traced, traced_key)
        self._plain_structures.add(traced_key or "")
        trial.key = found.key
        self._share(trial.program, found.key, trial.config)
        return plain

    def _run(self, trial: LoopTrial) -> Metrics:
        inputs = self._inputs(trial.config, trial.rows, trial.seed, trial.epoch)
        callbacks = trial.callbacks
        if inputs.validation is None or not callbacks.watch_validation:
            return trial.program.epoch(inputs)
        metrics = trial.program.epoch(inputs._replace(validation=None))
        callbacks.test_begin()
        validated = trial.program.validate(inputs.validation, inputs.seeds)
        callbacks.test_end(validated)
        return metrics | validated

    def _inputs(self, config: Config, rows: DeviceRows, seed: int, epoch: int) -> Inputs:
        train, validation = rows.train, rows.validation
        order: np.ndarray[Any, Any] | None = None
        size = self._workload.global_batch_size(config)
        if isinstance(train, Stream):
            shuffled = self._workload.shuffle(config)
            train = train.batches(size, seed=seed, epoch=epoch, shuffled=shuffled)
        else:
            order = self._order(config, rows, seed, epoch)
        if isinstance(validation, Stream):
            validation = validation.batches(size, seed=seed, epoch=0, shuffled=False)
        seeds = example_seeds(seed, epoch) if rows.per_example else None
        return Inputs(train, validation, order, seeds, unseeded_state(seed, epoch))

    def _callbacks(self, config: Config, rows: DeviceRows, model: Any) -> EpochCallbacks:
        num_batches = -(-rows.num_train // self._workload.global_batch_size(config))
        return EpochCallbacks(self._workload.callbacks(config), model, num_batches)

    def _order(
        self, config: Config, rows: DeviceRows, seed: int, epoch: int
    ) -> "np.ndarray[Any, Any]":
        if self._workload.shuffle(config):
            return epoch_order(seed, epoch, rows.num_train)
        return np.arange(rows.num_train, dtype=np.int32)

    def _build(self, config: Config, seed: int, rows: DeviceRows) -> Any:
        with self._workload_state.building(self._workload, self):
            model = build_model(self._workload, config, self._replicas, seed, rows.sample[0])
        if self._parallelism.synchronized_batch_norm and self._replicas.num > 1:
            synchronize(model)
        warn_of_local_statistics(model, self._replicas.num)
        warn_of_micro_batches(model, self._parallelism.micro_batches)
        return model

    def _make_program(
        self,
        model: Any,
        scalars: list[Scalar],
        config: Config,
        rows: DeviceRows,
        found: Fingerprint,
    ) -> Program:
        self.num_programs += 1
        self._workload_state.record_trained(each for each in found.variables if each.trainable)
        return self._new_program(model, scalars, config, rows, found)

    def _new_program(
        self,
        model: Any,
        scalars: list[Scalar],
        config: Config,
        rows: DeviceRows,
        found: Fingerprint,
    ) -> Program:
        return self.program_class(
            self._workload,
            model,
            self._replicas,
            settings=BatchSettings(
                rows.sample,
                rows.num_train,
                rows.num_validation,
                self._workload.global_batch_size(config),
                self._parallelism.micro_batches,
                self._parallelism.uneven,
                rows.per_example,
                rows.is_streamed,
            ),
            variables=found.variables,
            scalars=scalars,
        )

    def _structure(
        self, model: Any, scalars: list[Scalar], config: Config, rows: DeviceRows
    ) -> Fingerprint:
        computed = rows.per_example and rows.per_example.number
        size = self._workload.global_batch_size(config)
        batch = (rows.spec, size, self._replicas.shape, computed)
        return program_fingerprint(self._workload, model, scalars, config, batch)


class _FreshModel(NamedTuple):
    """A trial's fresh model before training."""

    model: Any
    found: Fingerprint
    config: Config
    rows: DeviceRows
    seed: int


def _is_finite(metrics: Metrics) -> bool:
    return all(np.all(np.isfinite(value)) for value in metrics.values())


def _nearly_equal(one: Metrics, other: Metrics) -> bool:
    """Return whether metrics are equal up to rounding; non-finite ones count as equal."""
    return one.keys() == other.keys() and all(
        (np.allclose(one[name], other[name], 1e-4, 1e-6))
        or not (np.all(np.isfinite(one[name])) or np.all(np.isfinite(other[name])))
        for name in one
    )


class DryRunLoop(GraphLoop, abc.ABC):
    """Loop that runs a new program once before its trial begins.

    Code that reads a traced scalar's value while tracing gets NaN, so a program that fails or is
    not finite is rebuilt with plain floats. If the second one is not finite either, traced scalars
    are not the cause, and the first one stays shared.
    """

    @abc.abstractmethod
    def _dry_run(self, trial: LoopTrial) -> bool:
        """Run a new program once and undo it; return whether its numbers are finite."""

    def _prepare(self, config: Config, rows: DeviceRows, seed: int) -> LoopTrial:
        if rows.is_streamed:
            raise WorkloadError(
                "asynchronous workers pick rows by index, but Data holds a Pipeline: return "
                "arrays, or use another kind of parallelism"
            )
        trial = super()._prepare(config, rows, seed)
        if not trial.is_first_run:
            return trial
        key = trial.key
        if not (key and trial.program.num_traced_scalars):
            self._dry_run(trial)
            return trial
        try:
            if self._dry_run(trial):
                return trial
        except Exception as error:  # noqa: BLE001  the plain program raises it too
            _log.debug("the program with traced scalars failed: %s", error)
        self._unshare(trial.program, key)
        self._plain_structures.add(key)
        plain = super()._prepare(config, rows, seed)
        if not self._dry_run(plain):
            self._plain_structures.discard(key)
            self._share(trial.program, key, config)
        return plain
