"""Training loop on ``keras.Model.fit``, for workloads that need what only ``fit`` supports."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras

from tune_tf.data.loading import has_loaded
from tune_tf.result_keys import ROWS_PER_S, Metrics
from tune_tf.training.build import build_model, build_weights
from tune_tf.training.callback_state import CallbackState, CallbackStateTracker
from tune_tf.training.callbacks import CallbackContext, plain_value, supported_callbacks
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.input.device_rows import first_rows_of
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.scalars import LearningRate, learning_rate
from tune_tf.training.seeds import seed_python_and_numpy
from tune_tf.training.step import trains_by_workload
from tune_tf.workload import Config, Data, Workload

_FOR_EVER = 10**9


class _FitRun(keras.callbacks.Callback):
    """Run of ``fit`` in a thread, as its last callback, which pauses it after each epoch.

    ``restored`` is the state of the other callbacks when training begins, if not the initial one.
    """

    def __init__(
        self,
        fit: Callable[[], None],
        seed: int,
        callbacks: Sequence[keras.callbacks.Callback],
        restored: CallbackState | None = None,
    ) -> None:
        super().__init__()
        self._fit = fit
        self._seed = seed
        self.others = callbacks
        self._restored = restored
        self._state = CallbackStateTracker([])
        self._continue: queue.Queue[bool] = queue.Queue()
        self._outcomes: queue.Queue[Metrics | BaseException] = queue.Queue()
        self._thread: threading.Thread | None = None
        #: Whether ``on_train_end`` has been called.
        self.have_ended = False

    @property
    def state(self) -> CallbackState:
        """Changes of the other callbacks since training began."""
        return self._restored or self._state.changes()

    def next_epoch(self) -> Metrics:
        """Run one epoch and return its metrics."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._continue.put(True)
        outcome = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def end(self) -> None:
        """Stop ``fit`` and wait until it returns."""
        if self._thread and self._thread.is_alive():
            self._continue.put(False)
            self._thread.join()

    def on_train_begin(self, logs: Any = None) -> None:
        self._state = CallbackStateTracker(self.others)
        if self._restored is not None:
            self._state.restore(self._restored)
        self._restored = None

    def on_train_end(self, logs: Any = None) -> None:
        self.have_ended = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        seed_python_and_numpy(self._seed + epoch)

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        self._outcomes.put({name: plain_value(value) for name, value in (logs or {}).items()})
        if not self._continue.get():
            self.model.stop_training = True

    def _run(self) -> None:
        self._continue.get()
        try:
            self._fit()
        except BaseException as error:  # noqa: BLE001  raised in next_epoch
            self._outcomes.put(error)
        else:
            self._outcomes.put(RuntimeError("this trial has ended"))


class _TrialParams(keras.callbacks.Callback):
    """First callback of the list, which sets the parameters of a trial."""

    def __init__(self, context: CallbackContext) -> None:
        super().__init__()
        self._context = context

    def set_params(self, params: dict[str, Any]) -> None:
        params.update(self._context.params(params["steps"]))  # all callbacks share this dict


@dataclass
class _Trial:
    workload: Workload
    config: Config
    data: Data
    seed: int
    model: keras.Model
    initial_rate: LearningRate
    epoch: int = 0


class FitLoop:
    """Loop that calls ``keras.Model.fit`` once per trial and pauses it between epochs.

    It trains on one device.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._trial: _Trial | None = None
        self._stopped_state: Checkpoint | None = None  # before on_train_end
        self._run: _FitRun
        self.num_programs = 0
        #: Context of the callbacks of the next trial.
        self.callback_context = CallbackContext()
        #: Speed of the last epoch, by result key.
        self.performance: dict[str, float] = {}

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""
        return bool(self._current.model.stop_training)

    @property
    def _current(self) -> _Trial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, workload: Workload, config: Config, rows: Data, seed: int) -> None:
        """Begin a trial of a workload that no other trial uses."""
        self._stopped_state = None
        model = build_model(workload, config, self._replicas, seed, may_run_eagerly=True)
        if trains_by_workload(workload):
            _replace_train_step(model, workload)
        self.num_programs += 1
        trial = _Trial(workload, config, rows, seed, model, learning_rate(model))
        self._run, self._trial = self._new_run(trial), trial

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        trial = self._current
        began = time.perf_counter()
        metrics = self._run.next_epoch()
        took_s = time.perf_counter() - began
        if num_rows := _num_rows(trial.data):
            self.performance = {ROWS_PER_S: num_rows / took_s}
        trial.epoch += 1
        if trial.model.stop_training:
            self._stopped_state = self.state()
            self._run.end()  # on_train_end may change the weights
        return metrics

    def state(self) -> Checkpoint:
        """Return a checkpoint of the trial."""
        trial = self._current
        self._build(trial)
        return Checkpoint.of(
            trial.model,
            epoch=trial.epoch,
            seed=trial.seed,
            config=dict(trial.config),
            initial_rate=trial.initial_rate,
            callbacks=self._run.state,
            has_ended=self._run.have_ended,
            needs_data=has_loaded(trial.workload),
        )

    def epoch_state(self) -> Checkpoint:
        """Return the state before ``on_train_end``, which may have changed the weights."""
        return self._stopped_state or self.state()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint; the config of :meth:`start` overrides the checkpoint's."""
        trial = self._current
        self._stopped_state = None
        self._run.end()
        self._build(trial)
        checkpoint.load_into(trial.model, trial.initial_rate)
        trial.epoch, trial.seed = checkpoint.epoch, checkpoint.seed
        self._run = self._new_run(trial, checkpoint.callbacks)

    def finish(self) -> None:
        """End the trial."""
        trial, self._trial = self._trial, None
        if trial:
            self._run.end()
            del self._run  # it holds the trial's model and data

    def _new_run(self, trial: _Trial, restored: CallbackState | None = None) -> _FitRun:
        others = supported_callbacks(trial.workload.callbacks(trial.config), "fit")
        return _FitRun(partial(self._fit, trial), trial.seed, others, restored)

    def _build(self, trial: _Trial) -> None:
        """Create the variables that ``fit`` creates in its first epoch."""
        if not trial.model.built:
            first = first_rows_of(trial.data.train, "train", 1)
            build_weights(trial.model, first[0], self._replicas)
        if not trial.model.optimizer.built:
            with self._replicas.scope():
                trial.model.optimizer.build(trial.model.trainable_variables)

    def _fit(self, trial: _Trial) -> None:
        train, size = trial.data.train, trial.workload.global_batch_size(trial.config)
        has_arrays = isinstance(train, tuple)
        may_shuffle = has_arrays or isinstance(train, keras.utils.PyDataset)
        parts = train if has_arrays else (train,)
        # Row order and random operations in `fit` follow from TensorFlow's global seed.
        keras.utils.set_random_seed((trial.seed + trial.epoch) % 2**32)
        run = self._run
        self.callback_context.place_files(run.others)
        trial.model.fit(
            **dict(zip(("x", "y", "sample_weight"), parts, strict=False)),
            batch_size=size if has_arrays else None,
            validation_data=trial.data.validation,
            steps_per_epoch=trial.data.steps_per_epoch,
            validation_steps=trial.data.validation_steps,
            shuffle=may_shuffle and trial.workload.shuffle(trial.config),
            class_weight=trial.data.class_weight,
            initial_epoch=trial.epoch,
            epochs=_FOR_EVER,
            callbacks=[_TrialParams(self.callback_context), *run.others, run],
            verbose=0,
        )


def _num_rows(data: Data) -> int:
    """Return the number of training rows; 0 unless they are arrays."""
    return len(keras.tree.flatten(data.train)[0]) if isinstance(data.train, tuple) else 0


def _replace_train_step(model: keras.Model, workload: Workload) -> None:
    """Let a model train by the workload's step, which may call the model's own."""
    own = model.train_step

    def train_step(batch: Any) -> Any:
        model.train_step = own
        try:
            return workload.train_step(model, batch)
        finally:
            model.train_step = train_step

    model.train_step = train_step
