"""How a trial trains: one epoch at a time, from one trial to the next in one process."""

import abc
import logging
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.result_keys import INPUT_WAIT, ROWS_PER_S
from tune_tf.space import flat
from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.core.batch_norm import (
    synchronize,
    warn_of_local_statistics,
    warn_of_smaller_batches,
)
from tune_tf.training.core.build import build_model
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.program import Inputs, Metrics, Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import Rate, Scalar, learning_rate, scalars_of
from tune_tf.training.core.seeds import (
    epoch_order,
    example_seeds,
    global_draws_undone,
    unseeded_state,
)
from tune_tf.training.core.step import has_own_train_step
from tune_tf.training.core.structure import structure_of
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.per_example import PerExamples
from tune_tf.training.input.stream import Stream
from tune_tf.training.reuse import reuse_check
from tune_tf.training.reuse.fingerprint import Fingerprint
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.workload import Config, Workload

_log = logging.getLogger(__name__)


_PROGRAMS_TRIED = 2  # of a loop, without a graph


class Loop(Protocol):
    """What a Trainable needs of a way to train."""

    @property
    def num_programs(self) -> int:
        """Programs that were traced."""

    @property
    def stop_training(self) -> bool:
        """Whether a callback asked to end the trial."""

    @property
    def performance(self) -> dict[str, float]:
        """How fast the last epoch was, by key of a result."""

    def start(self, config: Config, rows: Any, seed: int) -> None:
        """Begin a trial."""

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""

    def state(self) -> Checkpoint:
        """Return everything needed to go on later."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a state; the config of :meth:`start` wins over the checkpoint's."""

    def finish(self) -> None:
        """End the trial."""


@dataclass
class LoopTrial:
    """A trial in a loop, from its start to its end."""

    config: Config
    rows: DeviceRows
    seed: int
    program: Program
    callbacks: EpochCallbacks
    key: str | None
    is_first_of_program: bool
    initial_rate: Rate
    structure: str | None = None  # of the model, where callbacks may change it
    epoch: int = 0
    restored: Checkpoint | None = None  # what the first epoch starts from, if from one


class GraphLoop:
    """Epochs as single graph calls, with programs shared by trials of one structure.

    Args:
        workload: What the trials train.
        replicas: What they train on.
        spread: How batches go over the replicas; their number is that of ``replicas``.
    """

    program_class: type[Program] = Program

    def __init__(
        self,
        workload: Workload,
        replicas: Replicas,
        spread: Mirrored = Mirrored(),  # noqa: B008  frozen
    ) -> None:
        self._workload = workload
        self._replicas = replicas
        self._spread = spread
        self._per_examples = PerExamples(workload)
        self._state_of_workload = WorkloadState.of(workload)
        self._programs: dict[str, list[Program]] = {}
        self._uncarried: set[str] = set()  # structures that do not work with carried scalars
        self._unshared: set[str] = set()  # those whose trials were found to differ
        self._checks_reuse = reuse_check.is_enabled() and self._can_check_reuse
        self._trial: LoopTrial | None = None
        self.num_programs = 0
        #: How fast the last epoch was, by key of a result.
        self.performance: dict[str, float] = {}

    @property
    def is_training(self) -> bool:
        """Whether a trial has begun and not ended."""
        return self._trial is not None

    @property
    def _can_check_reuse(self) -> bool:
        """Whether one process alone can run an epoch without a graph."""
        return self.program_class is Program and type(self._replicas) is Replicas

    @property
    def stop_training(self) -> bool:
        """Whether a callback asked to end the trial."""
        return bool(self._current.program.model.stop_training)

    @property
    def _current(self) -> LoopTrial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial: fresh seeded weights, zeroed optimizer, and no trace if one is there.

        Args:
            config: The trial's values.
            rows: Its data, placed by :func:`tune_tf.training.input.device_rows.place_rows`.
            seed: Of weights, dropout and data order.
        """
        trial = self._trial = self._prepared(config, rows, seed)
        if trial.key is None or not trial.callbacks.may_change_model:
            trial.callbacks.train_begin()
            return
        trial.structure = trial.program.structure()
        trial.callbacks.train_begin()
        # A layer was frozen, say, or nobody can tell.
        if trial.structure is None or trial.program.structure() != trial.structure:
            self._forget(trial.program, trial.key)
            trial.program.trace_anew()
            trial.key = None

    def _prepared(self, config: Config, rows: DeviceRows, seed: int) -> LoopTrial:
        """Return a trial that has not begun."""
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
        """Do one epoch, of whose end the callbacks have still to be told."""
        trial = self._current
        trial.callbacks.epoch_begin(trial.epoch)
        began = time.perf_counter()
        metrics = self._guarded_epoch(trial)
        took_s = time.perf_counter() - began
        self.performance = {
            ROWS_PER_S: trial.rows.num_train / took_s,
            INPUT_WAIT: min(1.0, trial.program.waited_s / took_s),
        }
        trial.epoch += 1
        return metrics

    def end_epoch(self, epoch: int, metrics: Metrics) -> Metrics:
        """Tell the callbacks of the end of an epoch, counting from 0 as Keras does.

        Returns:
            The metrics with what they add.
        """
        return self._current.callbacks.epoch_end(epoch, metrics)

    def end_training(self) -> None:
        """Tell the callbacks that there will be no further epoch."""
        self._current.callbacks.train_end()

    @property
    def model(self) -> Any:
        """The trial's model."""
        return self._current.program.model

    @property
    def callbacks(self) -> EpochCallbacks:
        """The trial's callbacks."""
        return self._current.callbacks

    def state(self) -> Checkpoint:
        """Return everything needed to go on later."""
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
        """Go on from a state, also one saved with another number of replicas.

        Raises:
            CheckpointError: The checkpoint is of a model of another structure.
        """
        trial = self._current
        self._load(checkpoint, trial)
        trial.program.model.stop_training = False
        trial.epoch = checkpoint.epoch
        trial.seed = checkpoint.seed
        trial.restored = checkpoint if trial.is_first_of_program else None
        if checkpoint.untold is not None:
            trial.callbacks.epoch_end(checkpoint.epoch - 1, dict(checkpoint.untold))

    def finish(self) -> None:
        """End the trial."""
        if self._trial is not None:
            self._trial.callbacks.train_end()
            trial, self._trial = self._trial, None
            if trial.structure and trial.program.structure() != trial.structure:
                self._forget(trial.program, trial.key)  # its model was changed on the way

    def _program_for(
        self, config: Config, rows: DeviceRows, seed: int
    ) -> tuple[Program, str | None, bool]:
        """Return the program that serves a trial, its key, and whether it was made for it."""
        model = self._build(config, seed, rows)
        scalars = scalars_of(model)
        found = self._structure(model, scalars, config, rows)
        self._state_of_workload.refuse_trained(found.variables)
        if found.key in self._uncarried:
            scalars = []
            found = self._structure(model, scalars, config, rows)
        for program in self._programs.get(found.key or "", ()):
            if program.serves(scalars):
                program.take_over(model, found.variables, scalars)
                return self._checked(program, _Fresh(model, found, config, rows, seed))
        if found.key is None:
            scalars = []
            _log.info("This trial is traced anew: %s", found.obstacle)
        program = self._make_program(model, scalars, config, rows, found)
        self._keep(program, found.key, config)
        return program, found.key, True

    def _checked(self, program: Program, fresh: "_Fresh") -> tuple[Program, str | None, bool]:
        """Return a reused program, or a new one where a fresh model gives other numbers.

        It is tried with the first trial that reuses it, and where a parameter changes for the
        first time.
        """
        record, key = program.reuse, fresh.found.key
        if record is None or fresh.rows.is_streamed or not self._checks_reuse:
            return program, key, False
        parameters = record.unchecked(flat(fresh.config))
        if parameters is None:
            return program, key, False
        try:
            with global_draws_undone():
                traced, differences = self._tried(program, fresh)
        except tf.errors.ResourceExhaustedError:  # there is no room for two models that train
            _log.info("A reused program was not checked for want of memory")
            differences = []
        if not differences:
            record.note(parameters)
            return program, key, False
        self._forget(program, key)
        self._unshared.add(key or "")
        _log.warning(
            reuse_check.difference_report(type(self._workload).__name__, parameters, differences)
        )
        return traced, None, True

    def _tried(self, program: Program, fresh: "_Fresh") -> tuple[Program, list[str]]:
        """Return a program that did the same as another one, and in what that other one differs."""
        config, rows, seed = fresh.config, fresh.rows, fresh.seed
        inputs = self._inputs(config, rows, seed, 0)
        eager = self._program_of(fresh.model, [], config, rows, fresh.found)
        if not reuse_check.differ_eagerly(program, eager, inputs):
            return eager, []
        model = self._build(config, seed, rows)
        found = self._structure(model, [], config, rows)
        traced = self._make_program(model, [], config, rows, found)
        return traced, reuse_check.differences(program, traced, inputs)

    def _keep(self, program: Program, key: str | None, config: Config) -> None:
        """Let a program serve later trials of a structure."""
        if key is not None and key not in self._unshared:
            program.reuse = ReuseRecord(flat(config))
            self._programs.setdefault(key, []).append(program)

    def _forget(self, program: Program, key: str | None) -> None:
        """Let a program serve no later trial."""
        if key is not None and program in self._programs.get(key, ()):
            self._programs[key].remove(program)

    def _load(self, checkpoint: Checkpoint, trial: LoopTrial) -> None:
        checkpoint.load_into(trial.program.model, trial.initial_rate)
        trial.callbacks.restore(checkpoint.callbacks)

    def _guarded_epoch(self, trial: LoopTrial) -> Metrics:
        """Run an epoch; share no program whose trace holds random numbers of this trial."""
        if not trial.is_first_of_program:
            return self._run(trial)
        trial.is_first_of_program = False
        metrics = self._first_run(trial)
        if trial.program.unshared_for is not None:
            _log.info("This program is not shared: %s", trial.program.unshared_for)
            self._forget(trial.program, trial.key)
            trial.key = None
        return metrics

    def _first_run(self, trial: LoopTrial) -> Metrics:
        """Run a new program; try one that carries scalars in vain again with plain floats.

        A carried scalar is NaN to code that takes its number while tracing. So the program is tried
        on a batch against the model without a graph, in which plain floats stand; where they
        differ, where the epoch fails or gives NaN, a second run with plain floats from the same
        seed tells.
        """
        if not (trial.key and trial.program.num_carried):
            return self._run(trial)
        try:
            is_doubtful = self._differs_eagerly(trial)
            metrics = self._run(trial)
        except (tf.errors.ResourceExhaustedError, MemoryError):
            raise  # the plain program needs as much
        except Exception as error:  # noqa: BLE001  whatever it is, the plain program raises it too
            _log.debug("the program with carried scalars failed: %s", error)
            metrics = None
        if metrics is None or is_doubtful or not _is_finite(metrics):
            metrics = self._retry_plain(trial, carried=metrics)
        trial.restored = None
        return metrics

    def _differs_eagerly(self, trial: LoopTrial) -> bool:
        """Return whether a program may do otherwise on a batch than its model without a graph.

        What takes a carried number wrongly is code, so the first programs tell of it. A train_step
        that is not Keras' own is not tried: its first call may make what later ones use.
        """
        program = trial.program
        if self.num_programs > _PROGRAMS_TRIED or has_own_train_step(self._workload, program.model):
            return False
        if trial.rows.is_streamed or not self._checks_reuse:
            return False
        inputs = self._inputs(trial.config, trial.rows, trial.seed, trial.epoch)
        try:
            with global_draws_undone():
                return reuse_check.differ_eagerly(program, program, inputs, as_a_whole=True)
        except tf.errors.ResourceExhaustedError:  # which an epoch may not be
            return False

    def _retry_plain(self, trial: LoopTrial, *, carried: Metrics | None) -> Metrics:
        model = self._build(trial.config, trial.seed, trial.rows)
        found = self._structure(model, [], trial.config, trial.rows)
        by_carrying, carried_key = trial.program, trial.key
        trial.program = self._make_program(model, [], trial.config, trial.rows, found)
        trial.callbacks.have_ended = True  # without a call: the trial begins again
        trial.callbacks = self._callbacks(trial.config, trial.rows, model)
        trial.callbacks.train_begin()
        if trial.restored is not None:
            self._load(trial.restored, trial)
        trial.callbacks.epoch_begin(trial.epoch)
        plain = self._run(trial)
        if carried is not None and _are_alike(plain, carried):
            return plain  # carrying is not to blame, and goes on
        self._forget(by_carrying, carried_key)
        self._uncarried.add(carried_key or "")
        trial.key = found.key
        self._keep(trial.program, found.key, trial.config)
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
        """Return what an epoch of a trial is done with."""
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
        """Return the numbers of the training rows in the order of an epoch."""
        if self._workload.shuffle(config):
            return epoch_order(seed, epoch, rows.num_train)
        return np.arange(rows.num_train, dtype=np.int32)

    def _build(self, config: Config, seed: int, rows: DeviceRows) -> Any:
        with self._state_of_workload.building(self._workload, self):
            model = build_model(self._workload, config, self._replicas, seed, rows.sample[0])
        if self._spread.synchronized_batch_norm and self._replicas.num > 1:
            synchronize(model)
        warn_of_local_statistics(model, self._replicas.num)
        warn_of_smaller_batches(model, self._spread.micro_batches)
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
        self._state_of_workload.note_trained(each for each in found.variables if each.trainable)
        return self._program_of(model, scalars, config, rows, found)

    def _program_of(
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
            sample=rows.sample,
            num_rows=rows.num_train,
            num_validation_rows=rows.num_validation,
            global_batch_size=self._workload.global_batch_size(config),
            variables=found.variables,
            scalars=scalars,
            micro_batches=self._spread.micro_batches,
            uneven=self._spread.uneven,
            per_example=rows.per_example,
            streamed=rows.is_streamed,
        )

    def _structure(
        self, model: Any, scalars: list[Scalar], config: Config, rows: DeviceRows
    ) -> Fingerprint:
        """Return what makes trials one program, with the variables of a model."""
        computed = rows.per_example and rows.per_example.number
        size = self._workload.global_batch_size(config)
        batch = (rows.spec, size, self._replicas.shape, computed)
        return structure_of(self._workload, model, scalars, config, batch)


class _Fresh(NamedTuple):
    """A trial's own model, before it has trained."""

    model: Any
    found: Fingerprint
    config: Config
    rows: DeviceRows
    seed: int


def _is_finite(metrics: Metrics) -> bool:
    return all(np.all(np.isfinite(value)) for value in metrics.values())


def _are_alike(one: Metrics, other: Metrics) -> bool:
    """Return whether metrics are equal but for rounding; all that are no numbers are."""
    return one.keys() == other.keys() and all(
        (np.allclose(one[name], other[name], 1e-4, 1e-6))
        or not (np.all(np.isfinite(one[name])) or np.all(np.isfinite(other[name])))
        for name in one
    )


class DryRunLoop(GraphLoop, abc.ABC):
    """Tries a new program once when a trial is prepared, which also traces it.

    A carried scalar is NaN to code that takes its number while tracing. A program that fails or
    gives no finite numbers is made again with plain floats; does that one not either, carrying is
    not to blame, and goes on.
    """

    @abc.abstractmethod
    def _rehearse(self, trial: LoopTrial) -> bool:
        """Run a trial's new program once, to no effect; return whether its numbers are finite."""

    def _prepared(self, config: Config, rows: DeviceRows, seed: int) -> LoopTrial:
        if rows.is_streamed:
            raise WorkloadError(
                "asynchronous workers pick rows by number, but Data holds a Pipeline: return "
                "arrays, or use another kind of parallelism"
            )
        trial = super()._prepared(config, rows, seed)
        if not trial.is_first_of_program:
            return trial
        key = trial.key
        if not (key and trial.program.num_carried):
            self._rehearse(trial)
            return trial
        try:
            if self._rehearse(trial):
                return trial
        except Exception as error:  # noqa: BLE001  whatever it is, the plain program raises it too
            _log.debug("the program with carried scalars failed: %s", error)
        self._forget(trial.program, key)
        self._uncarried.add(key)
        plain = super()._prepared(config, rows, seed)
        if not self._rehearse(plain):
            self._uncarried.discard(key)
            self._keep(trial.program, key, config)
        return plain
