"""Training loop on ``keras.Model.fit``, for workloads that need what only ``fit`` supports."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tune_tf.data import Pipeline
from tune_tf.data.loading import has_loaded
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.result_keys import ROWS_PER_S, Metrics
from tune_tf.training.callback_state import CallbackState, CallbackStateTracker, claim_callbacks
from tune_tf.training.callbacks import CallbackContext, plain_value, supported_callbacks
from tune_tf.training.core.build import build_from_types, build_model, build_weights
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.epoch import run_whole_batch
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.scalars import LearningRate, learning_rate
from tune_tf.training.core.seeds import seed_python_and_numpy
from tune_tf.training.core.step import ReplicaStep, Step, prepare_norms, trains_by_workload
from tune_tf.training.core.update import prepare_optimizer
from tune_tf.training.input.device_rows import first_rows_of
from tune_tf.training.keras_internals import hide_strategy
from tune_tf.training.reuse.workload_state import WorkloadState
from tune_tf.training.system_metrics import epoch_cost
from tune_tf.workload import Config, Data, Workload


class FitSteps:
    """Steps of ``fit`` and ``evaluate`` whose replicas share each batch.

    ``fit`` drives epochs, data and callbacks as on one device, and sees no strategy.

    Args:
        step: Step of the model to train.
        num_rows: Training rows; 0 if unknown.
        batch_size: Rows of a batch; 0 if unknown.
    """

    def __init__(self, step: Step, num_rows: int, batch_size: int) -> None:
        self._step = step
        self._num_rows, self._batch_size = num_rows, batch_size
        self._is_prepared = step.replicas.num == 1
        if step.replicas.num > 1:
            hide_strategy(step.model)
            step.model.jit_compile = False  # XLA compiles for one device

    def install(self) -> None:
        """Let the model make its functions for ``fit`` and ``evaluate`` from these steps."""
        model = self._step.model
        steps = {
            "train": partial(self._run, self._step.train, training=True),
            "test": partial(self._run, self._step.test, training=False),
        }
        for name, step in steps.items():
            make = getattr(model, f"make_{name}_function")
            replaced = partial(self._make_function, f"{name}_step", step, make)
            setattr(model, f"make_{name}_function", replaced)

    def _make_function(
        self,
        name: str,
        step: Callable[[Any], Any],
        make: Callable[[bool], None],
        force: bool = False,
    ) -> None:
        model = self._step.model
        own = getattr(model, name)
        setattr(model, name, step)
        try:
            make(force)
        finally:
            setattr(model, name, own)  # which the step may call

    def _run(self, run: Callable[..., Any], batch: Any, *, training: bool) -> dict[str, tf.Tensor]:
        self._prepare(batch)
        step = self._step
        with step.replicas.scope():  # Keras calls this in the scope of the default strategy
            result = run_whole_batch(
                step.replicas,
                lambda replica, rows, numbers, num_rows: run(replica, rows, num_rows),
                batch,
                is_custom=step.has_custom_train if training else step.has_custom_test,
            )
            return step.logs(result, training=training)

    def _prepare(self, batch: Any) -> None:
        """Create the variables of several replicas and make their optimizer exact, once.

        This is done at the first batch and from its types, since data that are read twice may
        shuffle otherwise.
        """
        if self._is_prepared:
            return
        step = self._step
        build_from_types(
            step.model, tf.nest.map_structure(tf.type_spec_from_value, batch), step.replicas
        )
        step.check(self._num_rows, self._batch_size)
        prepare_optimizer(step.model, step.replicas)
        self._is_prepared = True


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
    config: Config
    data: Data
    seed: int
    model: keras.Model
    initial_rate: LearningRate
    epoch: int = 0


class FitLoop:
    """Loop that calls ``fit`` once per trial and pauses it between epochs.

    ``parallelism`` sets how as many replicas as ``replicas`` share batches.
    """

    def __init__(
        self,
        workload: Workload,
        replicas: Replicas,
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
    ) -> None:
        self._workload = workload
        self._replicas = replicas
        self._parallelism = parallelism
        self._workload_state = WorkloadState.of(workload)
        self._trial: _Trial | None = None
        self._stopped_state: Checkpoint | None = None  # before on_train_end
        self._run: _FitRun
        self.num_programs = 0
        #: Context of the callbacks of the next trial.
        self.callback_context = CallbackContext()
        #: Speed of the last epoch, by result key.
        self.performance: dict[str, float] = {}

    @property
    def is_training(self) -> bool:
        """Whether a trial has begun and not ended."""
        return self._trial is not None

    @property
    def cost(self) -> float:
        """Seconds of an epoch on a reference processor, from its operations alone."""
        trial = self._current
        batch_size = self._workload.global_batch_size(trial.config)
        return epoch_cost(trial.model, _num_rows(trial.data), batch_size)

    @property
    def stop_training(self) -> bool:
        """Whether a callback requested the end of the trial."""
        return bool(self._current.model.stop_training)

    @property
    def _current(self) -> _Trial:
        if self._trial is None:
            raise RuntimeError("no trial was started")
        return self._trial

    def start(self, config: Config, rows: Data, seed: int) -> None:
        """Begin a trial with a new model and the data of ``load_data``; refuse a ``Pipeline``."""
        if isinstance(rows.train, Pipeline) or isinstance(rows.validation, Pipeline):
            raise WorkloadError(
                "loop: fit does not support a Pipeline of tune_tf.data: leave loop out, or "
                "return your own tf.data.Dataset"
            )
        self._stopped_state = None
        with self._workload_state.building(self._workload, self):
            model = self._build_model(config, rows, seed)
        self._workload_state.refuse_trained_variables(model.variables)
        self._workload_state.record_trained(model.trainable_variables)
        self.num_programs += 1
        trial = _Trial(config, rows, seed, model, learning_rate(model))
        self._run, self._trial = self._new_run(trial), trial

    def _build_model(self, config: Config, data: Data, seed: int) -> keras.Model:
        workload, replicas, parallelism = self._workload, self._replicas, self._parallelism
        is_single = replicas.num == 1
        model = build_model(workload, config, replicas, seed, may_run_eagerly=is_single)
        prepare_norms(model, replicas.num, parallelism)
        if not is_single or trains_by_workload(workload):
            step = ReplicaStep(workload, model, replicas, parallelism)
            size = workload.global_batch_size(config)
            FitSteps(step, _num_rows(data), size).install()
        return model

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        trial = self._current
        began = time.perf_counter()
        with self._workload_state.record_changes(self._workload):
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
            needs_data=has_loaded(self._workload),
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
        others = supported_callbacks(self._workload.callbacks(trial.config), "fit")
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
        train, size = trial.data.train, self._workload.global_batch_size(trial.config)
        has_arrays = isinstance(train, tuple)
        may_shuffle = has_arrays or isinstance(train, keras.utils.PyDataset)
        parts = train if has_arrays else (train,)
        # Row order and random operations in `fit` follow from TensorFlow's global seed.
        keras.utils.set_random_seed((trial.seed + trial.epoch) % 2**32)
        run = self._run
        claim_callbacks(run.others, run)
        self.callback_context.place_files(run.others)
        trial.model.fit(
            **dict(zip(("x", "y", "sample_weight"), parts, strict=False)),
            batch_size=size if has_arrays else None,
            validation_data=trial.data.validation,
            steps_per_epoch=trial.data.steps_per_epoch,
            validation_steps=trial.data.validation_steps,
            shuffle=may_shuffle and self._workload.shuffle(trial.config),
            class_weight=trial.data.class_weight,
            initial_epoch=trial.epoch,
            epochs=_FOR_EVER,
            callbacks=[_TrialParams(self.callback_context), *run.others, run],
            verbose=0,
        )


def _num_rows(data: Data) -> int:
    """Return the number of training rows; 0 unless they are arrays."""
    return len(keras.tree.flatten(data.train)[0]) if isinstance(data.train, tuple) else 0
