"""Cache of traced programs, which trials of one structure share."""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from tune_tf.space import flatten
from tune_tf.training.core.epoch import TrialInputs, epoch_inputs
from tune_tf.training.core.frozen_outputs import FrozenOutputs, SkippedLayers
from tune_tf.training.core.program import Program
from tune_tf.training.core.scalars import Scalar, scalars_of
from tune_tf.training.core.seeds import preserve_global_rng
from tune_tf.training.core.step import ReplicaBuilder, trains_by_workload
from tune_tf.training.input.per_example import PerExampleCache
from tune_tf.training.reuse import reuse_check
from tune_tf.training.reuse.fingerprint import (
    Fingerprint,
    fingerprint,
    global_settings,
    method_dependencies,
)
from tune_tf.training.reuse.reuse_check import ReuseRecord
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.workload import Config, Workload

_EAGER_CHECKS = 2  # number of programs that are compared with eager execution

_log = logging.getLogger(__name__)


@dataclass
class TrialProgram:
    """Program of a trial.

    Args:
        program: The program, which holds the trial's fresh model.
        inputs: Inputs of the trial, with the rows as the program reads them.
        key: Key of the structure; None if no other trial can use the program.
        is_new: Whether the program has not run yet.
    """

    program: Program
    inputs: TrialInputs
    key: str | None
    is_new: bool = True


@dataclass(frozen=True)
class _FreshModel:
    """A trial's model before training."""

    inputs: TrialInputs
    model: keras.Model
    scalars: list[Scalar]
    fingerprint: Fingerprint
    skipped: SkippedLayers | None


class ProgramCache:
    """Cache of the traced programs of a workload.

    Args:
        builder: Builder of the trials' models.
        dry_run: Runs a new program once before its trial begins and undoes it; returns whether its
            numbers are finite. By default, the first epoch shows that.
        checks_reuse: Whether to compare reused programs with fresh ones, which this process can run
            eagerly and without other processes.
        frozen: Where the trials find the outputs of frozen layers; None to compute them each time.
    """

    def __init__(
        self,
        builder: ReplicaBuilder,
        *,
        dry_run: Callable[[TrialProgram], bool] | None = None,
        checks_reuse: bool = False,
        frozen: FrozenOutputs | None = None,
    ) -> None:
        self._builder = builder
        self._workload = workload = builder.workload
        self._per_examples = PerExampleCache(workload)
        self._workload_state = WorkloadState.of(workload)
        self._programs: dict[str, list[Program]] = {}
        self._plain_structures: set[str] = set()  # structures that fail with traced scalars
        self._unshared: set[str] = set()  # structures whose reuse check failed
        self._dry_run = dry_run
        self._frozen = frozen
        self._checks_reuse = checks_reuse and reuse_check.is_enabled()
        #: Number of traced programs.
        self.num_programs = 0
        #: Whether a trial has begun and not ended.
        self.is_training = False

    def find(self, inputs: TrialInputs) -> TrialProgram:
        """Return a program with the fresh model of a trial: a matching traced one if it exists."""
        cached = self._find(inputs)
        dry_run = self._dry_run
        if dry_run is None or not cached.is_new:
            return cached
        traces_scalars = cached.program.traces_scalars
        try:
            if dry_run(cached) or not traces_scalars:
                return cached
        except Exception as error:
            if not traces_scalars:
                raise
            _log.debug("the program with traced scalars failed: %s", error)
        plain = self.replace_by_plain(cached)
        if not dry_run(plain):
            self.restore_traced(cached, plain)
        return plain

    def _find(self, inputs: TrialInputs) -> TrialProgram:
        rows = self._per_examples.attach(inputs.config, inputs.rows)
        fresh = self._build(inputs._replace(rows=rows))
        self._workload_state.refuse_trained_variables(fresh.fingerprint.variables)
        if fresh.fingerprint.key in self._plain_structures:
            fresh = self._fresh_model(
                fresh.model, fresh.inputs, fresh.skipped, traces_scalars=False
            )
        key, variables = fresh.fingerprint.key, fresh.fingerprint.variables
        for program in self._programs.get(key or "", ()):
            if program.is_valid_for(fresh.scalars):
                program.load_model(fresh.model, variables, fresh.scalars)
                return self._check_reuse(program, fresh)
        if key is None:
            _log.info("Retracing this trial: %s", fresh.fingerprint.obstacle)
            fresh = replace(fresh, scalars=[])
        return self._add(fresh)

    def replace_by_plain(self, traced: TrialProgram) -> TrialProgram:
        """Return a program with plain floats for a trial, and for all later ones like it.

        To be called if a program with traced scalars fails: code that reads a traced scalar's value
        while tracing gets NaN.
        """
        self.unshare(traced)
        self._plain_structures.add(traced.key or "")
        return self._add(self._build(traced.inputs, traces_scalars=False))

    def restore_traced(self, traced: TrialProgram, plain: TrialProgram) -> None:
        """Share a replaced program again, since traced scalars are not the cause of its failure."""
        self.unshare(plain)
        self._plain_structures.discard(traced.key or "")
        self._share(traced.program, traced.key, traced.inputs.config)

    def follow_weights(self, cached: TrialProgram) -> None:
        """Let a trial have the outputs of frozen layers whose weights were set from outside."""
        program, inputs = cached.program, cached.inputs
        rows = inputs.rows.computed_from
        if self._frozen is None or program.skipped is None or rows is None:
            return
        outputs = self._frozen.outputs(program.skipped, rows)
        if outputs is None:
            self.retrace(cached)
        else:
            cached.inputs = inputs._replace(rows=outputs)

    def retrace(self, cached: TrialProgram) -> None:
        """Trace the changed model of a trial anew, as a whole and for this trial alone."""
        self.unshare(cached)
        if self._frozen is not None and cached.program.skipped is not None:
            self._frozen.obstacle = self._frozen.obstacle or "a callback changed the model"
        rows = cached.inputs.rows
        rows = rows.computed_from or rows
        cached.inputs = cached.inputs._replace(rows=rows)
        cached.program.skipped = cached.key = None
        cached.program.jit_compile &= not rows.is_streamed
        cached.program.retrace()

    def unshare(self, cached: TrialProgram) -> None:
        """Give a program to no later trial."""
        if cached.key is not None and cached.program in self._programs.get(cached.key, ()):
            self._programs[cached.key].remove(cached.program)

    def differs_from_eager(self, cached: TrialProgram, epoch: int) -> bool:
        """Return whether a new program may differ from eager execution on one batch.

        The first programs suffice, since misuse of a traced scalar is a property of the code. A
        custom ``train_step`` is not checked: its first call may create objects for later calls.
        """
        program = cached.program
        if self.num_programs > _EAGER_CHECKS or program.step.has_custom_train:
            return False
        if cached.inputs.rows.is_streamed or not self._checks_reuse:
            return False
        inputs = epoch_inputs(self._workload, cached.inputs, epoch)
        try:
            with preserve_global_rng():
                return reuse_check.differs_from_eager(program, program, inputs, aggregate=True)
        except tf.errors.ResourceExhaustedError:  # a graph may need less memory
            return False

    def _build(self, inputs: TrialInputs, *, traces_scalars: bool = True) -> _FreshModel:
        inputs = inputs._replace(rows=inputs.rows.computed_from or inputs.rows)
        with self._workload_state.building(self._workload, self):
            model = self._builder.build(inputs)
        skipped = None
        if self._frozen is not None:
            skipped, inputs = self._frozen.find(self._workload, model, inputs)
        return self._fresh_model(model, inputs, skipped, traces_scalars=traces_scalars)

    def _fresh_model(
        self,
        model: keras.Model,
        inputs: TrialInputs,
        skipped: SkippedLayers | None,
        *,
        traces_scalars: bool,
    ) -> _FreshModel:
        config, rows, _ = inputs
        scalars = scalars_of(model) if traces_scalars else []
        computed = rows.per_example and rows.per_example.number
        size = rows.batch_size(self._workload, config)
        cut = skipped and skipped.key
        batch = (rows.spec, size, self._builder.replicas.shape, computed, cut)
        key = program_fingerprint(self._workload, model, scalars, config, batch)
        return _FreshModel(inputs, model, scalars, key, skipped)

    def _add(self, fresh: _FreshModel) -> TrialProgram:
        """Return a new program, shared if it has a key."""
        program, key = self._counted_program(fresh), fresh.fingerprint.key
        self._share(program, key, fresh.inputs.config)
        return TrialProgram(program, fresh.inputs, key)

    def _counted_program(self, fresh: _FreshModel) -> Program:
        self.num_programs += 1
        program = self._program(fresh)
        self._workload_state.record_trained(each for each in program.variables if each.trainable)
        return program

    def _program(self, fresh: _FreshModel) -> Program:
        inputs = fresh.inputs
        step = self._builder.step(fresh.model, inputs)
        if step.model is not fresh.model:
            fresh = self._fresh_model(step.model, inputs, None, traces_scalars=bool(fresh.scalars))
        return Program(
            self._workload,
            step,
            inputs.rows,
            inputs.rows.batch_size(self._workload, inputs.config),
            variables=fresh.fingerprint.variables,
            scalars=fresh.scalars,
            skipped=fresh.skipped,
        )

    def _share(self, program: Program, key: str | None, config: Config) -> None:
        if key is not None and key not in self._unshared:
            program.reuse = ReuseRecord(flatten(config))
            self._programs.setdefault(key, []).append(program)

    def _check_reuse(self, program: Program, fresh: _FreshModel) -> TrialProgram:
        """Return a reused program, or a new one if a fresh model gives different numbers.

        The check runs at the first reuse and whenever a parameter changes for the first time.
        """
        inputs = fresh.inputs
        reused = TrialProgram(program, inputs, fresh.fingerprint.key, is_new=False)
        if program.reuse is None or inputs.rows.is_streamed or not self._checks_reuse:
            return reused
        parameters = program.reuse.unchecked(flatten(inputs.config))
        if parameters is None:
            return reused
        try:
            with preserve_global_rng():
                traced, differences = self._try_reuse(program, fresh)
        except tf.errors.ResourceExhaustedError:  # two models do not fit
            _log.info("Skipping the check of a reused program: not enough memory")
            differences = []
        if not differences:
            program.reuse.note(parameters)
            return reused
        self.unshare(reused)
        self._unshared.add(reused.key or "")
        _log.warning(
            reuse_check.difference_report(type(self._workload).__name__, parameters, differences)
        )
        return TrialProgram(traced, inputs, None)

    def _try_reuse(self, program: Program, fresh: _FreshModel) -> tuple[Program, list[str]]:
        """Return a fresh program and its differences from a reused one."""
        inputs = epoch_inputs(self._workload, fresh.inputs, 0)
        eager = self._program(replace(fresh, scalars=[]))
        if not reuse_check.differs_from_eager(program, eager, inputs):
            return eager, []
        traced = self._counted_program(self._build(fresh.inputs, traces_scalars=False))
        return traced, reuse_check.compare_programs(program, traced, inputs)


def program_fingerprint(
    workload: Workload,
    model: keras.Model,
    scalars: Sequence[Scalar],
    config: Config,
    batch: Hashable = (),
) -> Fingerprint:
    """Return a fingerprint that is equal exactly for trials that can share a traced program.

    It excludes values that a program reads for each trial: variables, seeds of random generators
    and traced scalars. Automatic names must be counted from zero (see ``build.py``). ``batch``
    holds other constants of the trace: data shapes and types, batch size, replicas.
    """
    step = method_dependencies(workload, "train_step") if trains_by_workload(workload) else ()
    roots: list[Any] = [model, step, workload.structure(config), repr(batch), global_settings()]
    return fingerprint(roots, scalars)
