"""Training loop that runs epochs as graph calls and reuses traced programs across trials."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.data.loading import has_loaded
from tune_tf.errors import WorkloadError
from tune_tf.formatting import bytes_text
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.result_keys import (
    FROZEN_BYTES,
    FROZEN_LAYERS,
    FROZEN_SHARE,
    INPUT_WAIT,
    NOT_SHARED,
    ROWS_PER_S,
    Metrics,
)
from tune_tf.training.callbacks import CallbackContext, EpochCallbacks
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.epoch import TrialInputs, epoch_inputs
from tune_tf.training.core.frozen_outputs import FrozenOutputs
from tune_tf.training.core.program import Program, are_finite
from tune_tf.training.core.program_cache import ProgramCache, TrialProgram
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import LearningRate, learning_rate
from tune_tf.training.core.step import ReplicaBuilder
from tune_tf.training.input.dataset_stream import DatasetStream
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.system_metrics import epoch_cost
from tune_tf.workload import Config, Workload

_log = logging.getLogger(__name__)


@dataclass
class LoopTrial:
    """State of a trial in a loop."""

    cached: TrialProgram
    callbacks: EpochCallbacks
    initial_rate: LearningRate
    structure: str | None = None  # of the model, if callbacks may change it
    epoch: int = 0
    restored: Checkpoint | None = None  # start of the first epoch, if restored

    @property
    def program(self) -> Program:
        """Program of the trial."""
        return self.cached.program

    @property
    def inputs(self) -> TrialInputs:
        """Inputs of the trial."""
        return self.cached.inputs


class GraphLoop:
    """Loop that runs each epoch as one graph call, with programs shared by trials of one structure.

    ``parallelism`` sets how as many replicas as ``replicas`` share batches, unless ``programs`` do;
    ``frozen`` provides outputs of frozen layers.
    """

    def __init__(
        self,
        workload: Workload,
        replicas: Replicas,
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
        *,
        programs: ProgramCache | None = None,
        frozen: FrozenOutputs | None = None,
    ) -> None:
        self._workload = workload
        self._replicas = replicas
        self._frozen = frozen
        self._programs = programs or ProgramCache(
            ReplicaBuilder(workload, replicas, parallelism),
            checks_reuse=type(replicas) is Replicas,
            frozen=frozen,
        )
        self._trial: LoopTrial | None = None
        #: Context of the callbacks of the next trial.
        self.callback_context = CallbackContext()
        self._stopped_state: Checkpoint | None = None  # before on_train_end
        #: Speed of the last epoch, by result key.
        self.performance: dict[str, Any] = {}

    @property
    def num_programs(self) -> int:
        """Number of traced programs."""
        return self._programs.num_programs

    @property
    def cost(self) -> float:
        """Seconds of an epoch on a reference processor, from its operations alone."""
        program, num_rows = self.trial.program, self.trial.inputs.rows.num_train
        return epoch_cost(program.model, num_rows or _check_seen(self.trial), program.batch_size)

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""
        return bool(self.trial.program.model.stop_training)

    @property
    def trial(self) -> LoopTrial:
        """The current trial."""
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial with fresh seeded weights, in a matching traced program if one exists."""
        self._stopped_state = None
        cached = self._programs.find(TrialInputs(config, rows, seed))
        callbacks = self._callbacks(cached)
        self._trial = trial = LoopTrial(cached, callbacks, learning_rate(cached.program.model))
        self._programs.is_training = True
        if cached.key is None or not callbacks.may_change_model:
            callbacks.train_begin()
            return
        trial.structure = cached.program.structure()
        callbacks.train_begin()
        # A callback changed the model (by freezing a layer, say), or it cannot be compared.
        if trial.structure is None or cached.program.structure() != trial.structure:
            self._programs.retrace(cached)

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        return self._end_epoch(self.train_epoch())

    def _end_epoch(self, metrics: Metrics) -> Metrics:
        callbacks = self.trial.callbacks
        metrics = callbacks.epoch_end(self.trial.epoch - 1, metrics)
        if self.stop_training:
            self._stopped_state = self.state()
            callbacks.train_end()
        return metrics

    def train_epoch(self) -> Metrics:
        """Run one epoch without calling ``on_epoch_end``."""
        trial = self.trial
        trial.callbacks.epoch_begin(trial.epoch)
        if trial.callbacks.may_change_model:
            self._programs.follow_weights(trial.cached)
        began = time.perf_counter()
        metrics = self._run_guarded(trial)
        took_s = time.perf_counter() - began
        num_rows = trial.inputs.rows.num_train or _check_seen(trial)
        self.performance = {
            ROWS_PER_S: num_rows / took_s,
            INPUT_WAIT: min(1.0, trial.program.waited_s / took_s),
        }
        self.performance |= self._frozen_layers(trial)
        trial.epoch += 1
        return metrics

    def _frozen_layers(self, trial: LoopTrial) -> dict[str, Any]:
        """Return what shared outputs of frozen layers save in an epoch, by result key."""
        if trial.program.skipped is not None:
            layers, rows = trial.program.skipped.layers, trial.inputs.rows
            num_bytes = float((rows.num_train + rows.num_validation) * layers.row_bytes)
            text = f"shared on this node: {bytes_text(num_bytes)} of outputs of {layers}"
            return {FROZEN_SHARE: layers.share, FROZEN_BYTES: num_bytes, FROZEN_LAYERS: text}
        if self._frozen is not None and self._frozen.obstacle:
            return {FROZEN_LAYERS: f"{NOT_SHARED}{self._frozen.obstacle}"}
        return {}

    def state(self) -> Checkpoint:
        """Return a checkpoint of the trial."""
        trial = self.trial
        return Checkpoint.of(
            trial.program.model,
            epoch=trial.epoch,
            seed=trial.inputs.seed,
            config=dict(trial.inputs.config),
            initial_rate=trial.initial_rate,
            callbacks=trial.callbacks.state(),
            has_ended=trial.callbacks.have_ended,
            needs_data=has_loaded(self._workload),
        )

    def epoch_state(self) -> Checkpoint:
        """Return the state that the metrics of the last epoch belong to.

        That is :meth:`state`, except after ``on_train_end``, which may have changed the weights.
        """
        return self._stopped_state or self.state()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint of the same structure, with any number of replicas."""
        trial = self.trial
        self._stopped_state = None
        _load(checkpoint, trial)
        trial.program.model.stop_training = False
        trial.epoch = checkpoint.epoch
        trial.cached.inputs = trial.inputs._replace(seed=checkpoint.seed)
        self._programs.follow_weights(trial.cached)
        trial.restored = checkpoint if trial.cached.is_new else None
        if checkpoint.pending_metrics is not None:
            trial.callbacks.epoch_end(checkpoint.epoch - 1, dict(checkpoint.pending_metrics))

    def finish(self) -> None:
        """End the trial."""
        if self._trial is not None:
            self._trial.callbacks.train_end()
            trial, self._trial = self._trial, None
            self._programs.is_training = False
            if trial.structure and trial.program.structure() != trial.structure:
                self._programs.unshare(trial.cached)  # callbacks changed its model

    def _callbacks(self, cached: TrialProgram) -> EpochCallbacks:
        program, inputs = cached.program, cached.inputs
        train, size = inputs.rows.train, program.batch_size
        if isinstance(train, DatasetStream):
            num_batches = train.num_batches(size)
        else:
            num_batches = -(-inputs.rows.num_train // size)
        callbacks = self._workload.callbacks(inputs.config)
        return EpochCallbacks(callbacks, program.model, num_batches, self.callback_context)

    def _run_guarded(self, trial: LoopTrial) -> Metrics:
        """Run an epoch; stop sharing a program whose trace contains state of this trial."""
        if not trial.cached.is_new:
            return self._run(trial)
        trial.cached.is_new = False
        metrics = self._first_run(trial)
        cached = trial.cached
        if cached.program.unshareable_reason is not None:
            _log.info("Not sharing this program: %s", cached.program.unshareable_reason)
            self._programs.unshare(cached)
            cached.key = None
        return metrics

    def _first_run(self, trial: LoopTrial) -> Metrics:
        """Run a new program; fall back to plain floats if traced scalars do not work.

        Code that reads a traced scalar's value while tracing gets NaN. One batch of the program is
        therefore compared with eager execution, which uses plain floats. If the results differ, or
        the epoch fails or is not finite, it runs again with plain floats from the same seed.
        """
        if not trial.program.traces_scalars:
            return self._run(trial)
        try:
            differs = self._programs.differs_from_eager(trial.cached, trial.epoch)
            metrics = self._run(trial)
        except (tf.errors.ResourceExhaustedError, MemoryError):
            raise  # the plain program needs as much memory
        except Exception as error:  # noqa: BLE001  the plain program raises it too
            _log.debug("the program with traced scalars failed: %s", error)
            metrics = None
        if metrics is None or differs or not are_finite(metrics.values()):
            metrics = self._retry_plain(trial, traced_metrics=metrics)
        trial.restored = None
        return metrics

    def _retry_plain(self, trial: LoopTrial, *, traced_metrics: Metrics | None) -> Metrics:
        traced = trial.cached
        plain = self._programs.replace_by_plain(traced)
        plain.is_new = False
        trial.cached = plain
        trial.callbacks.have_ended = True  # no on_train_end: the trial begins again
        trial.callbacks = self._callbacks(plain)
        trial.callbacks.train_begin()
        if trial.restored is not None:
            _load(trial.restored, trial)
            self._programs.follow_weights(plain)
        trial.callbacks.epoch_begin(trial.epoch)
        metrics = self._run(trial)
        if traced_metrics is not None and _nearly_equal(metrics, traced_metrics):
            self._programs.restore_traced(traced, plain)
        return metrics

    def _run(self, trial: LoopTrial) -> Metrics:
        inputs = epoch_inputs(self._workload, trial.inputs, trial.epoch)
        callbacks = trial.callbacks
        if inputs.validation is None or not callbacks.watch_validation:
            return trial.program.epoch(inputs)
        metrics = trial.program.epoch(inputs._replace(validation=None))
        callbacks.test_begin()
        validated = trial.program.validate(inputs.validation, inputs.seeds)
        callbacks.test_end(validated)
        return metrics | validated


def _check_seen(trial: LoopTrial) -> int:
    """Return the rows of a data set in the last epoch, after checking that there were enough."""
    num_batches, num_rows = trial.program.num_seen
    if num_batches == 0:
        raise WorkloadError("Data.train is empty: its data set has no batches")
    train = trial.inputs.rows.train
    steps = train.steps
    if steps is not None and num_batches < steps and train.is_endless:
        raise WorkloadError(
            f"Data.train ended after {num_batches} of {steps} batches (steps_per_epoch): append "
            ".repeat() to the data set, or leave steps_per_epoch out"
        )
    return num_rows


def _load(checkpoint: Checkpoint, trial: LoopTrial) -> None:
    checkpoint.load_into(trial.program.model, trial.initial_rate)
    trial.callbacks.restore(checkpoint.callbacks)


def _nearly_equal(one: Metrics, other: Metrics) -> bool:
    """Return whether metrics are equal up to rounding; non-finite ones count as equal."""
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], 1e-4, 1e-6)
        or not (are_finite([one[name]]) or are_finite([other[name]]))
        for name in one
    )
