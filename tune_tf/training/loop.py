"""How a trial trains: one epoch at a time, from one trial to the next in one process."""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tune_tf.bookkeeping import INPUT_WAIT, ROWS_PER_S
from tune_tf.parallelism import Mirrored
from tune_tf.training.batch_norm import (
    synchronize,
    warn_of_local_statistics,
    warn_of_smaller_batches,
)
from tune_tf.training.build import build_model
from tune_tf.training.callbacks import EpochCallbacks
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.per_example import PerExamples
from tune_tf.training.placed import Placed
from tune_tf.training.program import Metrics, Program
from tune_tf.training.replicas import Replicas
from tune_tf.training.scalars import Rate, Scalar, learning_rate, scalars_of
from tune_tf.training.seeds import epoch_order, example_seeds
from tune_tf.training.stream import Stream
from tune_tf.training.structure import structure_key
from tune_tf.workload import Config, Workload

_log = logging.getLogger(__name__)


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
    rows: Placed
    seed: int
    program: Program
    callbacks: EpochCallbacks
    key: str | None
    is_first_of_program: bool
    initial_rate: Rate
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
        self._programs: dict[str, Program] = {}
        self._uncarried: set[str] = set()  # structures that do not work with carried scalars
        self._trial: LoopTrial | None = None
        self.num_programs = 0
        #: How fast the last epoch was, by key of a result.
        self.performance: dict[str, float] = {}

    @property
    def stop_training(self) -> bool:
        """Whether a callback asked to end the trial."""
        return bool(self._current.program.model.stop_training)

    @property
    def _current(self) -> LoopTrial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: Placed, seed: int) -> None:
        """Begin a trial: fresh seeded weights, zeroed optimizer, and no trace if one is there.

        Args:
            config: The trial's values.
            rows: Its data, placed by :func:`tune_tf.training.placed.place`.
            seed: Of weights, dropout and data order.
        """
        self._trial = self._prepared(config, rows, seed)
        self._trial.callbacks.train_begin()

    def _prepared(self, config: Config, rows: Placed, seed: int) -> LoopTrial:
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
            self._trial = None

    def _program_for(
        self, config: Config, rows: Placed, seed: int
    ) -> tuple[Program, str | None, bool]:
        """Return the program that serves a trial, its key, and whether it was made for it."""
        model = self._build(config, seed, rows)
        scalars = scalars_of(model)
        key = self._key(model, scalars, config, rows)
        if key in self._uncarried:
            scalars = []
            key = self._key(model, scalars, config, rows)
        program = self._programs.get(key) if key else None
        if program is not None:
            program.take_over(model, scalars)
            return program, key, False
        program = self._make_program(model, scalars if key else [], config, rows)
        if key:
            self._programs[key] = program
        return program, key, True

    def _load(self, checkpoint: Checkpoint, trial: LoopTrial) -> None:
        checkpoint.load_into(trial.program.model, trial.initial_rate)
        trial.callbacks.restore(checkpoint.callbacks)

    def _guarded_epoch(self, trial: LoopTrial) -> Metrics:
        """Run an epoch; try a new program that fails or gives NaN again with plain floats.

        A carried scalar is NaN to code that takes its number while tracing, so a NaN from a new
        program can be ours. A second run with plain floats from the same seed tells.
        """
        if not (trial.is_first_of_program and trial.key and trial.program.num_carried):
            trial.is_first_of_program = False
            return self._run(trial)
        trial.is_first_of_program = False
        try:
            metrics = self._run(trial)
        except Exception as error:  # noqa: BLE001  whatever it is, the plain program raises it too
            _log.debug("the program with carried scalars failed: %s", error)
            metrics = None
        if metrics is None or not math.isfinite(metrics.get("loss", 0.0)):
            metrics = self._retry_plain(trial, carried_runs=metrics is not None)
        trial.restored = None
        return metrics

    def _retry_plain(self, trial: LoopTrial, *, carried_runs: bool) -> Metrics:
        model = self._build(trial.config, trial.seed, trial.rows)
        carried_key = trial.key or ""
        trial.program = self._make_program(model, [], trial.config, trial.rows)
        trial.callbacks = self._callbacks(trial.config, trial.rows, model)
        trial.callbacks.train_begin()
        if trial.restored is not None:
            self._load(trial.restored, trial)
        trial.callbacks.epoch_begin(trial.epoch)
        plain = self._run(trial)
        if carried_runs and not math.isfinite(plain.get("loss", 0.0)):
            return plain  # it diverged by itself: carrying is not to blame, and goes on
        del self._programs[carried_key]
        self._uncarried.add(carried_key)
        trial.key = self._key(model, [], trial.config, trial.rows)
        if trial.key:
            self._programs[trial.key] = trial.program
        return plain

    def _run(self, trial: LoopTrial) -> Metrics:
        seeds = example_seeds(trial.seed, trial.epoch) if trial.rows.per_example else None
        train, validation = trial.rows.train, trial.rows.validation
        order: np.ndarray[Any, Any] | None = None
        size = self._workload.global_batch_size(trial.config)
        if isinstance(train, Stream):
            shuffled = self._workload.shuffle(trial.config)
            train = train.batches(size, seed=trial.seed, epoch=trial.epoch, shuffled=shuffled)
        else:
            order = self._order(trial)
        if isinstance(validation, Stream):
            validation = validation.batches(size, seed=trial.seed, epoch=0, shuffled=False)
        callbacks = trial.callbacks
        if validation is None or not callbacks.watch_validation:
            return trial.program.epoch(train, validation, order, seeds)
        metrics = trial.program.epoch(train, None, order, seeds)
        callbacks.test_begin()
        validated = trial.program.validate(validation, seeds)
        callbacks.test_end(validated)
        return metrics | validated

    def _callbacks(self, config: Config, rows: Placed, model: Any) -> EpochCallbacks:
        num_batches = -(-rows.num_train // self._workload.global_batch_size(config))
        return EpochCallbacks(self._workload.callbacks(config), model, num_batches)

    def _order(self, trial: LoopTrial) -> "np.ndarray[Any, Any]":
        """Return the numbers of the training rows in the order of the coming epoch."""
        if self._workload.shuffle(trial.config):
            return epoch_order(trial.seed, trial.epoch, trial.rows.num_train)
        return np.arange(trial.rows.num_train, dtype=np.int32)

    def _build(self, config: Config, seed: int, rows: Placed) -> Any:
        model = build_model(self._workload, config, self._replicas, seed, rows.sample[0])
        if self._spread.synchronized_batch_norm and self._replicas.num > 1:
            synchronize(model)
        warn_of_local_statistics(model, self._replicas.num)
        warn_of_smaller_batches(model, self._spread.micro_batches)
        return model

    def _make_program(
        self, model: Any, scalars: list[Scalar], config: Config, rows: Placed
    ) -> Program:
        self.num_programs += 1
        return self.program_class(
            self._workload,
            model,
            self._replicas,
            sample=rows.sample,
            num_rows=rows.num_train,
            num_validation_rows=rows.num_validation,
            global_batch_size=self._workload.global_batch_size(config),
            scalars=scalars,
            micro_batches=self._spread.micro_batches,
            uneven=self._spread.uneven,
            per_example=rows.per_example,
            streamed=rows.is_streamed,
        )

    def _key(self, model: Any, scalars: list[Scalar], config: Config, rows: Placed) -> str | None:
        vouched = self._workload.structure(config)
        carried = [(type(s.owner).__name__, s.attribute) for s in scalars]
        computed = rows.per_example and rows.per_example.number
        size = self._workload.global_batch_size(config)
        batch = (rows.spec, size, self._replicas.shape, carried, computed)
        return structure_key(model, scalars, vouched, batch)
