"""Validation of a snapshot, away from the devices that train."""

import math
from dataclasses import replace

import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.loop import GraphLoop
from tune_tf.training.placed import Placed
from tune_tf.training.program import Metrics, Program
from tune_tf.training.replicas import Replicas
from tune_tf.training.scalars import scalars_of
from tune_tf.training.seeds import example_seeds
from tune_tf.training.stream import Stream
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
        self._trial: tuple[Config, Placed, int] | None = None
        self._program: Program | None = None
        self._source: Placed | None = None
        self._placed: Placed | None = None

    @property
    def num_programs(self) -> int:
        """Programs that were traced."""
        return self._programs.num_programs

    def start(self, config: Config, rows: Placed, seed: int) -> None:
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

    def prepared(self, config: Config, rows: Placed) -> Placed:
        """Return a trial's rows with what it computes of them."""
        return self._per_examples.of(config, rows)

    def program_for(self, config: Config, rows: Placed, seed: int) -> Program:
        """Return the program of a trial's structure, with its scalars."""
        return self._program_for(config, rows, seed)[0]

    def plain_program_for(self, config: Config, rows: Placed, seed: int) -> Program:
        """Return a program of a trial's own numbers, now and for all of its structure."""
        model = self._build(config, seed, rows)
        key = self._structure(model, scalars_of(model), config, rows).key
        if key:
            self._uncarried.add(key)
        return self.program_for(config, rows, seed)


def _validated(program: Program, snapshot: Checkpoint, rows: Placed) -> Metrics:
    for variable, value in zip(program.model.variables, snapshot.model, strict=True):
        variable.assign(value)
    seeds = example_seeds(snapshot.seed, snapshot.epoch) if rows.per_example else None
    return program.validate(rows.validation, seeds)


def _is_finite(metrics: Metrics) -> bool:
    return math.isfinite(metrics.get("val_loss", 0.0))
