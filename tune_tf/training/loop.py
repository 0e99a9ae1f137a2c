"""Training loop that runs epochs as graph calls, and traces of earlier trials again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tune_tf.data.loading import has_loaded
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.result_keys import (
    FROZEN_LAYERS,
    GRAPH,
    NOT_SHARED,
    ROWS_PER_S,
    Metrics,
)
from tune_tf.training.callbacks import CallbackContext, EpochCallbacks
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.epoch import TrialInputs, epoch_inputs
from tune_tf.training.frozen.frozen_outputs import FrozenOutputs
from tune_tf.training.graph import GraphCache
from tune_tf.training.input.dataset_stream import DatasetStream
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.input.per_example import with_per_example
from tune_tf.training.program import Program
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.scalars import LearningRate, learning_rate
from tune_tf.training.seeds import seed_python_and_numpy
from tune_tf.training.step import ReplicaBuilder
from tune_tf.workload import Config, Workload


@dataclass
class LoopTrial:
    """State of a trial in a loop."""

    workload: Workload
    program: Program
    inputs: TrialInputs
    callbacks: EpochCallbacks
    initial_rate: LearningRate
    epoch: int = 0


class GraphLoop:
    """Loop that runs each epoch as one graph call.

    Args:
        replicas: Replicas that share each batch.
        parallelism: How they share it.
        builder: Returns the builder of a workload's models and steps; by default of models whose
            replicas share their variables.
        graphs: Graphs of earlier trials, which loops of a process may share.
        frozen: Provider of the outputs of frozen layers; None to compute them each time.
    """

    def __init__(
        self,
        replicas: Replicas,
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
        *,
        builder: Callable[[Workload], ReplicaBuilder] | None = None,
        graphs: GraphCache | None = None,
        frozen: FrozenOutputs | None = None,
    ) -> None:
        self._replicas = replicas
        self._builder = builder or (lambda each: ReplicaBuilder(each, replicas, parallelism))
        self._graphs = graphs or GraphCache()
        self._frozen = frozen
        self._trial: LoopTrial | None = None
        #: Context of the callbacks of the next trial.
        self.callback_context = CallbackContext()
        self._stopped_state: Checkpoint | None = None  # before on_train_end
        #: Speed of the last epoch, by result key.
        self.performance: dict[str, Any] = {}

    @property
    def replicas(self) -> Replicas:
        """Replicas that share each batch."""
        return self._replicas

    @property
    def num_programs(self) -> int:
        """Number of traced graphs."""
        return self._graphs.num_traced

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

    def start(self, workload: Workload, config: Config, rows: DeviceRows, seed: int) -> None:
        """Begin a trial of a workload that no other trial uses, with fresh seeded weights."""
        self._stopped_state = None
        inputs = TrialInputs(config, with_per_example(workload, config, rows), seed)
        builder = self._builder(workload)
        step = builder.step(builder.build(inputs), inputs)
        size = inputs.rows.batch_size(workload, config)
        program = Program(workload, step, inputs.rows, size)
        callbacks = self._callbacks(workload, program, inputs)
        rate = learning_rate(program.model)
        self._trial = LoopTrial(workload, program, inputs, callbacks, rate)
        callbacks.train_begin()

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        return self._end_epoch(self._train_epoch())

    def _end_epoch(self, metrics: Metrics) -> Metrics:
        callbacks = self.trial.callbacks
        metrics = callbacks.epoch_end(self.trial.epoch - 1, metrics)
        if self.stop_training:
            self._stopped_state = self.state()
            callbacks.train_end()
        return metrics

    def _train_epoch(self) -> Metrics:
        """Run one epoch without calling ``on_epoch_end``."""
        trial = self.trial
        seed_python_and_numpy(trial.inputs.seed + trial.epoch)  # from which callbacks may draw
        trial.callbacks.epoch_begin(trial.epoch)
        program = trial.program
        skipped = program.skipped
        # Callbacks may have changed the model, and later the weights of frozen layers.
        is_stale = skipped and trial.callbacks.may_change_model and not skipped.is_current
        if program.graph is None:
            self._prepare(trial)
        elif self._frozen is not None and skipped and is_stale:
            program.skipped = self._frozen.computed_again(skipped, trial.inputs.rows)
        began = time.perf_counter()
        metrics = self._run(trial)
        took_s = time.perf_counter() - began
        num_rows = trial.inputs.rows.num_train or _check_seen(trial)
        self.performance = {
            ROWS_PER_S: num_rows / took_s,
            GRAPH: "of an earlier trial" if program.is_shared else f"traced{_reason(program)}",
        }
        self.performance |= self._frozen_layers(trial)
        trial.epoch += 1
        return metrics

    def _prepare(self, trial: LoopTrial) -> None:
        """Find the graph of a trial and the rows that it reads."""
        program, rows = trial.program, trial.inputs.rows
        skipped = None
        if self._frozen is not None:
            skipped = self._frozen.find(trial.workload, program.model, rows)
        program.prepare(self._graphs, trial.inputs.config, rows, skipped)

    def _frozen_layers(self, trial: LoopTrial) -> dict[str, str]:
        """Return which outputs of frozen layers are shared, or why none, by result key."""
        if trial.program.skipped is not None:
            layers = trial.program.skipped.layers
            return {FROZEN_LAYERS: f"shared on this node: outputs up to {layers.name}"}
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
            needs_data=has_loaded(trial.workload),
            others=trial.program.others(),
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
        checkpoint.load_into(trial.program.model, trial.initial_rate)
        trial.callbacks.restore(checkpoint.callbacks)
        trial.program.set_others(checkpoint.others)
        trial.program.model.stop_training = False
        trial.epoch = checkpoint.epoch
        trial.inputs = trial.inputs._replace(seed=checkpoint.seed)
        if trial.program.skipped:
            trial.program.release()  # the weights may be others

    def finish(self) -> None:
        """End the trial."""
        if self._trial is not None:
            self._trial.callbacks.train_end()
            trial, self._trial = self._trial, None
            trial.program.release()

    def _callbacks(
        self, workload: Workload, program: Program, inputs: TrialInputs
    ) -> EpochCallbacks:
        train, size = inputs.rows.train, program.batch_size
        if isinstance(train, DatasetStream):
            num_batches = train.num_batches(size)
        else:
            num_batches = -(-inputs.rows.num_train // size)
        callbacks = workload.callbacks(inputs.config)
        return EpochCallbacks(callbacks, program.model, num_batches, self.callback_context)

    def _run(self, trial: LoopTrial) -> Metrics:
        rows = trial.program.skipped.rows if trial.program.skipped else trial.inputs.rows
        inputs = epoch_inputs(trial.workload, trial.inputs._replace(rows=rows), trial.epoch)
        callbacks = trial.callbacks
        if inputs.validation is None or not callbacks.watch_validation:
            return trial.program.epoch(inputs)
        metrics = trial.program.epoch(inputs._replace(validation=None))
        callbacks.test_begin()
        validated = trial.program.validate(inputs.validation, inputs.seeds)
        callbacks.test_end(validated)
        return metrics | validated


def _reason(program: Program) -> str:
    return f" for this trial, as it runs {program.own_code}" if program.own_code else ""


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
