"""Keras callbacks for epochs that run as one graph call."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.result_keys import Metrics
from tune_tf.training.callback_state import CallbackState, CallbackStateTracker
from tune_tf.training.keras_internals import profiles_batches
from tune_tf.training.replicas.row_means import loss_tracker

_BATCH_HOOKS = tuple(
    name
    for name in dir(keras.callbacks.Callback)
    if name.startswith("on_") and "batch" in name and "predict" not in name
)
_TEST_HOOKS = ("on_test_begin", "on_test_end")


_PATHS: dict[type, str] = {
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.OrbaxCheckpoint: "directory",
    keras.callbacks.TensorBoard: "log_dir",
}
"""Attributes of Keras' callbacks that hold the path of their files."""


@dataclass(frozen=True)
class CallbackContext:
    """Trial in which callbacks are called.

    Args:
        epochs: Maximum epochs of the trial, as ``params["epochs"]``; None if unknown.
        folder: Folder of the relative paths of Keras' callbacks; None for the working directory.
        discards_files: Whether to write all their files to a temporary folder, since another
            process writes them for the trial.
    """

    epochs: int | None = None
    folder: Path | None = None
    discards_files: bool = False

    def params(self, num_batches: int | None) -> dict[str, Any]:
        """Return ``callback.params``; None stands for an unknown number, as in Keras."""
        return {"verbose": 0, "epochs": self.epochs, "steps": num_batches}

    def place_files(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Set the paths of Keras' callbacks."""
        for callback in callbacks:
            for attribute in (_PATHS[kind] for kind in _PATHS if isinstance(callback, kind)):
                path, folder = str(getattr(callback, attribute)), self.folder
                if self.discards_files:
                    folder, path = Path(tempfile.mkdtemp(prefix="tune_tf-")), Path(path).name
                    weakref.finalize(callback, shutil.rmtree, folder, ignore_errors=True)
                if folder is None or "://" in path:
                    continue
                if attribute == "filename":  # CSVLogger does not create folders
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                if attribute == "filepath":  # a template
                    folder = Path(str(folder).replace("{", "{{").replace("}", "}}"))
                setattr(callback, attribute, str(folder / path))


class EpochCallbacks:
    """Runner of Keras callbacks around epochs, as in ``fit``, with save and restore of state.

    Raises:
        WorkloadError: A callback has batch hooks or is not supported in trials.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        num_batches: int | None = None,
        context: CallbackContext = CallbackContext(),
    ) -> None:
        self._callbacks = supported_callbacks(callbacks)
        self._model = model
        self._compiled = self._compiled_with
        self._num_batches = num_batches
        self._context = context
        self._list: keras.callbacks.CallbackList | None = None
        self._state = CallbackStateTracker([])
        self._reader = _LogsReader()
        self._logs: Metrics | None = None
        self._trained: list[int] = []  # variables in the last epoch
        #: Whether ``on_train_end`` has been called.
        self.have_ended = False
        #: Names of the callbacks that have validation hooks.
        self.watch_validation = ", ".join(
            type(callback).__name__
            for callback in self._callbacks
            if any(_overrides(callback, hook) for hook in _TEST_HOOKS)
        )

    @property
    def _compiled_with(self) -> tuple[Any, Any]:
        """What another ``compile`` replaces."""
        return self._model.optimizer, loss_tracker(self._model)

    @property
    def may_change_model(self) -> bool:
        """Whether any callback is custom, so that it may change the model."""
        return any(map(is_custom, self._callbacks))

    def train_begin(self) -> None:
        """Attach the model and call ``on_train_begin``."""
        self.have_ended, self._logs = False, None
        if not self._callbacks:
            return
        self._context.place_files(self._callbacks)
        self._list = keras.callbacks.CallbackList(
            [*self._callbacks, self._reader],
            add_history=True,
            model=self._model,
            **self._context.params(self._num_batches),
        )
        self._list.on_train_begin()
        self._trained = self._trainable_ids()
        self._state = CallbackStateTracker(
            [each for each in self._list.callbacks if each is not self._reader]
        )

    def epoch_begin(self, epoch: int) -> None:
        """Call ``on_epoch_begin`` with an epoch counted from 0."""
        if not self._list:
            return
        self._list.on_epoch_begin(epoch)
        if any(
            old is not new for old, new in zip(self._compiled, self._compiled_with, strict=True)
        ):
            raise WorkloadError(
                "a callback compiled the model anew or replaced its optimizer, but an epoch trains "
                "with those of build_model, as in fit: change model.optimizer.learning_rate instead"
            )
        if epoch and self._trained != self._trainable_ids():
            raise WorkloadError(
                f"a callback changed which layers train before epoch {epoch + 1}, which has no "
                "effect after the first epoch, as in fit: set layer.trainable in on_train_begin"
            )

    def _trainable_ids(self) -> list[int]:
        return [id(variable) for variable in self._model.trainable_variables]

    def test_begin(self) -> None:
        """Call ``on_test_begin``, between the training and the validation of an epoch."""
        if self._list:
            self._list.on_test_begin()

    def test_end(self, metrics: Mapping[str, Any]) -> None:
        """Call ``on_test_end``; the metric names begin with ``val_``."""
        if self._list:
            logs = {name.removeprefix("val_"): value for name, value in metrics.items()}
            self._list.on_test_end(logs)

    def epoch_end(self, epoch: int, metrics: Metrics) -> Metrics:
        """Call ``on_epoch_end``; return the metrics with changes by callbacks, as in ``fit``."""
        if self._list is None:
            return metrics
        self._logs, self._trained = metrics, self._trainable_ids()
        for callback in self._callbacks:
            if isinstance(callback, keras.callbacks.TerminateOnNaN):
                callback.on_train_batch_end((self._num_batches or 1) - 1, metrics)
        self._list.on_epoch_end(epoch, dict(metrics))
        logs = {name: plain_value(value) for name, value in self._reader.logs.items()}
        return {name: logs[name] for name in metrics if name in logs} | logs

    def train_end(self) -> None:
        """Finalize the weights as ``fit`` does and call ``on_train_end``, once per trial."""
        if self.have_ended:
            return
        self.have_ended = True
        if self._list:
            self._model.optimizer.finalize_variable_values(self._model.trainable_variables)
            self._list.on_train_end(self._logs)

    def state(self) -> CallbackState:
        """Return the attributes that callbacks changed since training began.

        Unchanged attributes, such as the patience, follow from the config.
        """
        return self._state.changes()

    def restore(self, state: CallbackState) -> None:
        """Restore the result of :meth:`state`."""
        if self.have_ended:
            self.train_begin()
        self._state.restore(state)


def plain_value(value: Any) -> Any:
    """Convert a NumPy or TensorFlow scalar to Python; return other values unchanged."""
    if keras.ops.is_tensor(value):
        value = keras.ops.convert_to_numpy(value)
    return value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim else value


def restore_best_weights(
    model: keras.Model, callbacks: Sequence[keras.callbacks.Callback], state: CallbackState
) -> None:
    """Set the weights that ``EarlyStopping(restore_best_weights=True)`` sets at the end of ``fit``.

    The other callbacks are not called.
    """
    stopping = [
        callback
        for callback in keras.tree.flatten(callbacks)
        if isinstance(callback, keras.callbacks.EarlyStopping)
    ]
    runner = EpochCallbacks(stopping, model)
    runner.train_begin()
    runner.restore(state)
    runner.train_end()


def is_custom(callback: keras.callbacks.Callback) -> bool:
    """Return whether a callback may do anything, such as change the model or the logs."""
    is_known = type(callback).__module__.startswith(("keras.", "tune_tf."))
    return not is_known or isinstance(callback, keras.callbacks.LambdaCallback)


def supported_callbacks(callbacks: Any, loop: str = "graph") -> list[keras.callbacks.Callback]:
    """Return the flat list of a workload's callbacks.

    Raises:
        WorkloadError: A callback is not supported in trials, or not in a ``loop``.
    """
    flat: list[Any] = keras.tree.flatten(callbacks) if callbacks else []
    for callback in flat:
        _refuse_unsupported(callback)
        if loop == "graph":
            _refuse_batch_hooks(callback)
    return flat


def _refuse_unsupported(callback: keras.callbacks.Callback) -> None:
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise WorkloadError(
            f"BackupAndRestore(backup_dir={callback.backup_dir!r}) would start a trial from "
            "another trial's backup, and Tune restores trials from their own checkpoints: leave "
            "it out"
        )
    if isinstance(callback, keras.callbacks.TensorBoard) and find_spec("tensorboard") is None:
        raise WorkloadError(
            "keras.callbacks.TensorBoard needs the package tensorboard, which is not installed: "
            "pip install tensorboard"
        )
    if isinstance(callback, keras.callbacks.SwapEMAWeights) and callback.swap_on_epoch:
        raise WorkloadError(
            "SwapEMAWeights(swap_on_epoch=True) must know the last epoch, which Tune decides: use "
            "SwapEMAWeights(), which validates with the averages; exported models have them too"
        )


def _refuse_batch_hooks(callback: keras.callbacks.Callback) -> None:
    hooks = [
        hook
        for hook in _BATCH_HOOKS
        if _overrides(callback, hook) and not _is_idle_in_batches(callback, hook)
    ]
    if hooks:
        raise WorkloadError(
            f"{type(callback).__name__} has to be called for each batch ({', '.join(hooks)}), but "
            'an epoch is one graph call: use an epoch-level callback (save_freq="epoch", '
            'update_freq="epoch", profile_batch=0), or loop="fit" for this workload'
        )


def _is_idle_in_batches(callback: Any, hook: str) -> bool:
    """Return whether a hook is one of Keras' that does nothing for batches with these settings.

    TerminateOnNaN needs none: the loss of an epoch is NaN if the loss of any batch is.
    """
    if not getattr(callback, hook).__module__.startswith("keras."):
        return False
    if isinstance(callback, keras.callbacks.CallbackList):
        return False
    if isinstance(callback, keras.callbacks.TensorBoard):
        return callback.update_freq == "epoch" and not profiles_batches(callback)
    return getattr(callback, "save_freq", "epoch") == "epoch"


def _overrides(callback: keras.callbacks.Callback, hook: str) -> bool:
    function = getattr(getattr(callback, hook), "__func__", None)
    return function is not getattr(keras.callbacks.Callback, hook)


class _LogsReader(keras.callbacks.Callback):
    """Last callback of the list, which reads the logs after all others."""

    logs: Metrics

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs = logs
