"""A workload's Keras callbacks around epochs that are one graph call."""

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from tune_tf.errors import CheckpointError, WorkloadError
from tune_tf.training.callback_state import (
    NO_STATE,
    Arrays,
    CallbackState,
    attributes_of,
    decode,
)
from tune_tf.training.keras_internals import profiles_batches

Metrics = dict[str, Any]

_BATCH_HOOKS = tuple(
    name
    for name in dir(keras.callbacks.Callback)
    if name.startswith("on_") and "batch" in name and "predict" not in name
)
_TEST_HOOKS = ("on_test_begin", "on_test_end")


def _saves_by_epoch(callback: Any) -> bool:
    return callback.save_freq == "epoch"


def _draws_by_epoch(callback: Any) -> bool:
    return callback.update_freq == "epoch" and not profiles_batches(callback)


# What Keras' own callbacks for batches need for their hooks to do nothing in an epoch; the loss of
# an epoch is NaN if that of one of its batches is.
_IDLE_IN_BATCHES: dict[type, tuple[Callable[[Any], bool], str]] = {
    keras.callbacks.ModelCheckpoint: (_saves_by_epoch, 'save_freq="epoch"'),
    keras.callbacks.OrbaxCheckpoint: (_saves_by_epoch, 'save_freq="epoch"'),
    keras.callbacks.TensorBoard: (_draws_by_epoch, 'update_freq="epoch", profile_batch=0'),
    keras.callbacks.ProgbarLogger: (lambda callback: True, ""),  # `verbose` is 0: silent
    keras.callbacks.TerminateOnNaN: (lambda callback: True, ""),
}


class EpochCallbacks:
    """Calls Keras callbacks around epochs as ``fit`` does, and saves their state.

    Args:
        callbacks: The workload's.
        model: What they watch and steer.
        num_batches: Batches of an epoch; None where nobody asks.

    Raises:
        WorkloadError: One of them wants to be called for each batch, or cannot serve a trial.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        num_batches: int | None = None,
    ) -> None:
        given: list[Any] = keras.tree.flatten(callbacks) if callbacks else []
        for callback in given:
            refuse_in_trials(callback)
            _refuse_batch_hooks(callback)
        self._callbacks = given
        self._model = model
        self._num_batches = num_batches
        self._list: keras.callbacks.CallbackList | None = None
        self._state = TrialCallbackState([])
        self._reader = _LogsReader()
        self._logs: Metrics | None = None
        #: Whether training has ended, and they know it.
        self.have_ended = False
        #: Whether there is none.
        self.are_none = not given
        #: Whether one of them is to be called around validation.
        self.watch_validation = any(
            _overrides(callback, hook) for callback in given for hook in _TEST_HOOKS
        )

    @property
    def may_change_model(self) -> bool:
        """Whether one of them is of the user's own, and may do anything to the model."""
        return any(
            not type(callback).__module__.startswith("keras.")
            or isinstance(callback, keras.callbacks.LambdaCallback)
            for callback in self._callbacks
        )

    def train_begin(self) -> None:
        """Begin: hand over the model, and call ``on_train_begin``."""
        self.have_ended, self._logs = False, None
        if not self._callbacks:
            return
        claim(self._callbacks, self)
        self._list = keras.callbacks.CallbackList(
            [*self._callbacks, self._reader],
            add_history=True,
            model=self._model,
            **trial_params(self._num_batches),
        )
        self._list.on_train_begin()
        own = [each for each in self._list.callbacks if each is not self._reader]
        self._state = TrialCallbackState(own)

    def epoch_begin(self, epoch: int) -> None:
        """Call ``on_epoch_begin``, counting from 0 as Keras does."""
        if self._list:
            self._list.on_epoch_begin(epoch)

    def test_begin(self) -> None:
        """Call ``on_test_begin``, after the training of an epoch and before its validation."""
        if self._list:
            self._list.on_test_begin()

    def test_end(self, metrics: Mapping[str, Any]) -> None:
        """Call ``on_test_end``, with metrics whose names begin with ``val_``."""
        if self._list:
            logs = {name.removeprefix("val_"): value for name, value in metrics.items()}
            self._list.on_test_end(logs)

    def epoch_end(self, epoch: int, metrics: Metrics) -> Metrics:
        """Call ``on_epoch_end``.

        Returns:
            The metrics as the callbacks leave them: what ``fit`` has in its ``History``.
        """
        if self._list is None:
            return metrics
        self._logs = metrics
        for callback in self._callbacks:
            if isinstance(callback, keras.callbacks.TerminateOnNaN):
                callback.on_train_batch_end((self._num_batches or 1) - 1, metrics)
        self._list.on_epoch_end(epoch, dict(metrics))
        left = {name: plain_value(value) for name, value in self._reader.logs.items()}
        return {name: left[name] for name in metrics if name in left} | left

    def train_end(self) -> None:
        """Finish the weights as ``fit`` does, and call ``on_train_end``; once a trial."""
        if self.have_ended:
            return
        self.have_ended = True
        if self._list:
            self._model.optimizer.finalize_variable_values(self._model.trainable_variables)
            self._list.on_train_end(self._logs)

    def state(self) -> CallbackState:
        """Return what they have changed since training began (epochs waited, best weights, ...).

        What a callback has not changed is a setting, such as its patience: that follows from the
        config and is left out.
        """
        return self._state.now()

    def restore(self, state: CallbackState) -> None:
        """Set what :meth:`state` returned.

        Raises:
            CheckpointError: They cannot be set back.
        """
        if self.have_ended:
            self.train_begin()
        self._state.restore(state)


class TrialCallbackState:
    """The state of callbacks of a trial, from where training began.

    Args:
        callbacks: They have been told of the begin.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._arrays: Arrays = {}
        self._initial = [attributes_of(each, self._arrays) for each in self._callbacks]

    def now(self) -> CallbackState:
        """Return what they have changed since."""
        return CallbackState.of(self._callbacks, self._initial)

    def restore(self, state: CallbackState) -> None:
        """Set what :meth:`now` returned.

        Raises:
            CheckpointError: They cannot be set back.
        """
        try:
            state.load_into(self._callbacks, self._initial, self._arrays)
        except ValueError as error:
            raise CheckpointError(
                f"the callbacks cannot be set back, since {error}: make a new array in place of "
                "the one that on_train_begin or __init__ made"
            ) from error


def trial_params(num_batches: int | None) -> dict[str, Any]:
    """Return ``callback.params`` of a trial.

    Tune, its scheduler or a callback ends a trial, so the number of its epochs is None: Keras' own
    word for a number that is not known.
    """
    return {"verbose": 0, "epochs": None, "steps": num_batches}


def plain_value(value: Any) -> Any:
    """Return a scalar of NumPy or TensorFlow as Python's own, anything else as it is."""
    if keras.ops.is_tensor(value):
        value = keras.ops.convert_to_numpy(value)
    return value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim else value


def refuse_in_trials(callback: keras.callbacks.Callback) -> None:
    """Refuse a callback that cannot serve a trial, whatever its loop.

    Raises:
        WorkloadError: Names it and what to use.
    """
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise WorkloadError(
            f"BackupAndRestore(backup_dir={callback.backup_dir!r}) would begin a trial with what "
            "another one left in that folder, and Tune restores trials from their own "
            "checkpoints: leave it out"
        )
    if isinstance(callback, keras.callbacks.SwapEMAWeights) and callback.swap_on_epoch:
        raise WorkloadError(
            "SwapEMAWeights(swap_on_epoch=True) has to know which epoch is the last, which Tune "
            "decides: use SwapEMAWeights(), which validates by the averages; exported models "
            "have them too"
        )


def _refuse_batch_hooks(callback: keras.callbacks.Callback) -> None:
    name = type(callback).__name__
    hooks = []
    for hook in _BATCH_HOOKS:
        if not _overrides(callback, hook):
            continue
        own = [
            (is_idle, setting)
            for kind, (is_idle, setting) in _IDLE_IN_BATCHES.items()
            if getattr(type(callback), hook) is vars(kind).get(hook) and hook not in vars(callback)
        ]
        if own and not own[0][0](callback):
            raise WorkloadError(
                f"{name} with these settings wants to be called for each batch, but an epoch is "
                f'one graph call: use {name}(..., {own[0][1]}), or loop="fit" for this workload'
            )
        if not own:
            hooks.append(hook)
    if hooks:
        raise WorkloadError(
            f"{name} wants to be called for each batch ({', '.join(hooks)}), "
            'but an epoch is one graph call: use loop="fit" for this workload, or a callback '
            "for epochs"
        )


def _overrides(callback: keras.callbacks.Callback, hook: str) -> bool:
    """Return whether a callback has a method of its own for a hook, by class or by instance."""
    function = getattr(getattr(callback, hook), "__func__", None)
    return function is not getattr(keras.callbacks.Callback, hook)


class _LogsReader(keras.callbacks.Callback):
    """The last of a list of callbacks: sees the logs of an epoch as the others leave them."""

    logs: Metrics

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs = logs


@dataclass(frozen=True)
class _AsMade:
    """The attributes of a callback when a workload returned it first, those of state encoded."""

    attributes: dict[str, Any]
    state: dict[str, Any]
    arrays: Arrays = field(repr=False)


_MADE = "_tune_tf_as_made"
_STATELESS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
)
_owners: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()


def claim(callbacks: Sequence[keras.callbacks.Callback], owner: Any) -> None:
    """Take callbacks for a trial, before anything is called.

    A workload may return the very objects that an earlier trial had. They are set back to what they
    were then, so that a trial in a process that is used again begins as in a fresh one.

    Args:
        callbacks: The workload's.
        owner: Keeps them, and has them until its ``have_ended`` is true.

    Raises:
        WorkloadError: One of them is another trial's still, or cannot be set back.
    """
    for callback in callbacks:
        other = _owners.get(id(callback))
        if other is not None and other is not owner and not other.have_ended:
            raise WorkloadError(
                f"callbacks() returned the {type(callback).__name__} that another trial of this "
                "process has at this moment: make a new one for each trial"
            )
        _owners[id(callback)] = owner
        if _MADE in vars(callback):
            _set_back(callback)
        else:
            arrays: Arrays = {}
            state = attributes_of(callback, arrays)
            setattr(callback, _MADE, _AsMade(dict(vars(callback)), state, arrays))


def _set_back(callback: keras.callbacks.Callback) -> None:
    """Give a callback the attributes with which it was made."""
    name = type(callback).__name__
    made: _AsMade = vars(callback)[_MADE]
    attributes: dict[str, Any] = {_MADE: made}
    for attribute, value in made.attributes.items():
        if attribute in made.state:
            try:
                decoded = decode(made.state[attribute], made.arrays)
            except ValueError as error:
                raise WorkloadError(
                    f"callbacks() returned a {name} for the second time, whose {attribute!r} "
                    f"cannot be set back, since {error}: make a new one for each trial"
                ) from error
            attributes[attribute] = value if isinstance(value, np.ndarray) else decoded
        elif attribute in (*NO_STATE, "_model") or isinstance(value, _STATELESS):
            attributes[attribute] = value
        else:
            raise WorkloadError(
                f"callbacks() returned a {name} for the second time, whose {attribute!r} "
                f"({type(value).__name__}) may be as the trial before left it: make a new one for "
                "each trial"
            )
    vars(callback).clear()
    vars(callback).update(attributes)
