"""Epochs by ``keras.Model.fit``, for what only ``fit`` can do."""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from tune_tf.data import Pipeline
from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.errors import WorkloadError
from tune_tf.result_keys import ROWS_PER_S
from tune_tf.training.callback_state import CallbackState
from tune_tf.training.callbacks import (
    TrialCallbackState,
    claim,
    plain_value,
    refuse_in_trials,
    trial_params,
)
from tune_tf.training.core.build import build_model, build_weights
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import Rate, learning_rate
from tune_tf.training.core.seeds import seed_everything
from tune_tf.training.input.stream import first_rows_of
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.workload import Config, Data, Workload

Metrics = dict[str, Any]

_FOR_EVER = 10**9


class _Gate(keras.callbacks.Callback):
    """Holds ``fit`` at the end of each epoch until the next one is asked for."""

    def __init__(self, seed: int, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__()
        self._seed = seed
        self.others = callbacks
        self._state = TrialCallbackState([])
        self._go: queue.Queue[bool] = queue.Queue()
        self._done: queue.Queue[Metrics | BaseException] = queue.Queue()
        #: What the others are to begin with; None for what they begin with by themselves.
        self.restored: CallbackState | None = None
        #: Whether training has ended, and they know it.
        self.have_ended = False

    @property
    def state(self) -> CallbackState:
        """What the others have changed since training began."""
        return self.restored or self._state.now()

    def next_epoch(self) -> Metrics:
        """Let one epoch pass and return its metrics."""
        self._go.put(True)
        outcome = self._done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Let ``fit`` return."""
        self._go.put(False)

    def failed(self, error: BaseException) -> None:
        """Hand an error of ``fit`` to whoever waits for the epoch."""
        self._done.put(error)

    def wait(self) -> bool:
        """Wait until an epoch is asked for; False to end."""
        return self._go.get()

    def on_train_begin(self, logs: Any = None) -> None:
        self._state = TrialCallbackState(self.others)
        if self.restored is not None:
            self._state.restore(self.restored)
        self.restored = None

    def on_train_end(self, logs: Any = None) -> None:
        self.have_ended = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        seed_everything(self._seed + epoch)

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        self._done.put({name: plain_value(value) for name, value in (logs or {}).items()})
        if not self.model.stop_training and not self.wait():
            self.model.stop_training = True


class _UnknownEnd(keras.callbacks.Callback):
    """The first of the callbacks: tells the others that the number of epochs is not known."""

    def set_params(self, params: dict[str, Any]) -> None:
        params.update(trial_params(params["steps"]))


@dataclass
class _Trial:
    config: Config
    data: Data
    seed: int
    model: keras.Model
    gate: _Gate
    initial_rate: Rate
    epoch: int = 0
    thread: threading.Thread | None = field(default=None, repr=False)


class FitLoop:
    """One long call of ``fit`` a trial, held between epochs: every callback and data source works.

    Args:
        workload: What the trials train.
        replicas: What they train on; one.
    """

    def __init__(self, workload: Workload, replicas: Replicas) -> None:
        self._workload = workload
        self._replicas = replicas
        self._state_of_workload = WorkloadState.of(workload)
        self._trial: _Trial | None = None
        self.num_programs = 0
        #: How fast the last epoch was, by key of a result.
        self.performance: dict[str, float] = {}

    @property
    def is_training(self) -> bool:
        """Whether a trial has begun and not ended."""
        return self._trial is not None

    @property
    def stop_training(self) -> bool:
        """Whether a callback asked to end the trial."""
        return bool(self._current.model.stop_training)

    @property
    def _current(self) -> _Trial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: Data, seed: int) -> None:
        """Begin a trial with a model of its own.

        Args:
            config: The trial's values.
            rows: The workload's data as it returned them.
            seed: Of weights and data order.

        Raises:
            WorkloadError: They come from a pipeline of tune_tf.
        """
        if isinstance(rows.train, Pipeline) or isinstance(rows.validation, Pipeline):
            raise WorkloadError(
                "a Pipeline of tune_tf.data does not go with loop: fit, which takes a "
                "tf.data.Dataset of your own: leave loop out, or return that"
            )
        with self._state_of_workload.building(self._workload, self):
            model = build_model(self._workload, config, self._replicas, seed)
        self._state_of_workload.refuse_trained(model.variables)
        self._state_of_workload.note_trained(model.trainable_variables)
        self.num_programs += 1
        gate = self._gate(config, seed)
        self._trial = _Trial(config, rows, seed, model, gate, learning_rate(model))

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        trial = self._current
        if trial.thread is None:
            trial.thread = threading.Thread(target=self._fit, args=(trial,), daemon=True)
            trial.thread.start()
        began = time.perf_counter()
        with self._state_of_workload.noted(self._workload):
            metrics = trial.gate.next_epoch()
        took_s = time.perf_counter() - began
        if isinstance(trial.data.train, tuple):
            num_rows = len(keras.tree.flatten(trial.data.train)[0])
            self.performance = {ROWS_PER_S: num_rows / took_s}
        trial.epoch += 1
        if trial.model.stop_training:
            trial.thread.join()  # on_train_end may change the weights
        return metrics

    def state(self) -> Checkpoint:
        """Return everything needed to go on later."""
        trial = self._current
        self._build(trial)
        return Checkpoint.of(
            trial.model,
            epoch=trial.epoch,
            seed=trial.seed,
            config=trial.config,
            initial_rate=trial.initial_rate,
            callbacks=trial.gate.state,
            has_ended=trial.gate.have_ended,
            needs_data=WorkloadCopies.of(self._workload).has_loaded,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a state; the config of :meth:`start` wins over the checkpoint's."""
        trial = self._current
        _end(trial)
        self._build(trial)
        checkpoint.load_into(trial.model, trial.initial_rate)
        trial.epoch, trial.seed = checkpoint.epoch, checkpoint.seed
        trial.gate = self._gate(trial.config, trial.seed)
        trial.gate.restored = checkpoint.callbacks

    def finish(self) -> None:
        """End the trial."""
        trial, self._trial = self._trial, None
        if trial:
            _end(trial)

    def _gate(self, config: Config, seed: int) -> _Gate:
        callbacks = self._workload.callbacks(config)
        others: list[Any] = keras.tree.flatten(callbacks) if callbacks else []
        for callback in others:
            refuse_in_trials(callback)
        return _Gate(seed, others)

    def _build(self, trial: _Trial) -> None:
        """Create the variables that ``fit`` would create in its first epoch."""
        if not trial.model.built:
            first = first_rows_of(trial.data.train, "train", 1)
            build_weights(trial.model, first[0], self._replicas)
        if not trial.model.optimizer.built:
            trial.model.optimizer.build(trial.model.trainable_variables)

    def _fit(self, trial: _Trial) -> None:
        train, size = trial.data.train, self._workload.global_batch_size(trial.config)
        names = ("x", "y", "sample_weight") if isinstance(train, tuple) else ("x",)
        parts = train if isinstance(train, tuple) else (train,)
        if not trial.gate.wait():
            return
        # The order of rows in `fit` and its random operations follow from TensorFlow's own seed.
        keras.utils.set_random_seed((trial.seed + trial.epoch) % 2**32)
        try:
            claim(trial.gate.others, trial.gate)
            trial.model.fit(
                **dict(zip(names, parts, strict=False)),
                batch_size=size if isinstance(train, tuple) else None,
                validation_data=trial.data.validation,
                shuffle=self._workload.shuffle(trial.config),
                class_weight=trial.data.class_weight,
                initial_epoch=trial.epoch,
                epochs=_FOR_EVER,
                callbacks=[_UnknownEnd(), *trial.gate.others, trial.gate],
                verbose=0,
            )
        except BaseException as error:  # noqa: BLE001  it is raised where the epoch is awaited
            trial.gate.failed(error)
        else:
            trial.gate.failed(RuntimeError("this trial has ended; it trains no more"))


def _end(trial: _Trial) -> None:
    """Let ``fit`` return, and wait for it."""
    if trial.thread and trial.thread.is_alive():
        trial.gate.stop()
        trial.thread.join()
    trial.thread = None
