"""Epochs by ``keras.Model.fit``, for what only ``fit`` can do."""

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import keras

from tune_tf.bookkeeping import ROWS_PER_S
from tune_tf.data import Pipeline
from tune_tf.errors import WorkloadError
from tune_tf.training.build import build_model, build_weights
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.replicas import Replicas
from tune_tf.training.scalars import learning_rate
from tune_tf.training.seeds import seed_everything
from tune_tf.training.stream import first_rows_of
from tune_tf.workload import Config, Data, Workload

Metrics = dict[str, Any]

_FOR_EVER = 10**9


class _Gate(keras.callbacks.Callback):
    """Holds ``fit`` at the end of each epoch until the next one is asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._go: queue.Queue[bool] = queue.Queue()
        self._done: queue.Queue[Metrics | BaseException] = queue.Queue()

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

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        seed_everything(self._seed + epoch)

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        self._done.put(dict(logs or {}))
        if not self.model.stop_training and not self.wait():
            self.model.stop_training = True


@dataclass
class _Trial:
    config: Config
    data: Data
    seed: int
    model: keras.Model
    gate: _Gate
    initial_rate: float | None
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
        self._trial: _Trial | None = None
        self.num_programs = 0
        #: How fast the last epoch was, by key of a result.
        self.performance: dict[str, float] = {}

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
        model = build_model(self._workload, config, self._replicas, seed)
        self.num_programs += 1
        self._trial = _Trial(config, rows, seed, model, _Gate(seed), learning_rate(model))

    def epoch(self) -> Metrics:
        """Train and validate for one epoch; return metrics by name."""
        trial = self._current
        if trial.thread is None:
            trial.thread = threading.Thread(target=self._fit, args=(trial,), daemon=True)
            trial.thread.start()
        began = time.perf_counter()
        metrics = trial.gate.next_epoch()
        took_s = time.perf_counter() - began
        if isinstance(trial.data.train, tuple):
            num_rows = len(keras.tree.flatten(trial.data.train)[0])
            self.performance = {ROWS_PER_S: num_rows / took_s}
        trial.epoch += 1
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
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a state; counters of callbacks start anew, as ``fit`` does it."""
        trial = self._current
        _end(trial)
        self._build(trial)
        checkpoint.load_into(trial.model, trial.initial_rate)
        trial.epoch, trial.seed = checkpoint.epoch, checkpoint.seed
        trial.gate = _Gate(trial.seed)

    def finish(self) -> None:
        """End the trial."""
        trial, self._trial = self._trial, None
        if trial:
            _end(trial)

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
            trial.model.fit(
                **dict(zip(names, parts, strict=False)),
                batch_size=size if isinstance(train, tuple) else None,
                validation_data=trial.data.validation,
                shuffle=self._workload.shuffle(trial.config),
                class_weight=trial.data.class_weight,
                initial_epoch=trial.epoch,
                epochs=_FOR_EVER,
                callbacks=[*self._workload.callbacks(trial.config), trial.gate],
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
