"""A workload's Keras callbacks around epochs that are one graph call."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tune_tf.errors import WorkloadError

_BATCH_HOOKS = tuple(
    name
    for name in dir(keras.callbacks.Callback)
    if name.startswith("on_") and ("batch" in name or "predict" in name)
)


class EpochCallbacks:
    """Calls Keras callbacks at the ends of epochs, and saves what they count.

    Args:
        callbacks: The workload's.
        model: What they watch and steer.

    Raises:
        WorkloadError: One of them wants to be called for each batch.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        for callback in callbacks:
            _refuse_batch_hooks(callback)
        self._callbacks = list(callbacks)
        self._initial = self._counters()
        self._list = (
            keras.callbacks.CallbackList(self._callbacks, model=model) if callbacks else None
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
        """Tell that training starts."""
        if self._list:
            self._list.on_train_begin()
        self._initial = self._counters()

    def epoch_begin(self, epoch: int) -> None:
        """Tell that an epoch starts, counting from 0 as Keras does."""
        if self._list:
            self._list.on_epoch_begin(epoch)

    def epoch_end(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Tell that an epoch has ended, with its metrics."""
        if self._list:
            self._list.on_epoch_end(epoch, dict(logs))

    def train_end(self) -> None:
        """Tell that training has ended."""
        if self._list:
            self._list.on_train_end()

    def state(self) -> list[dict[str, Any]]:
        """Return the counters of each callback (epochs waited, best value, ...), for JSON.

        What a callback has not changed since training began is a setting, such as its patience:
        that follows from the config and is left out.
        """
        return [
            {k: v for k, v in now.items() if k not in initial or not _same(v, initial[k])}
            for now, initial in zip(self._counters(), self._initial, strict=True)
        ]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Set the counters that :meth:`state` returned."""
        for callback, initial, counters in zip(self._callbacks, self._initial, state, strict=False):
            vars(callback).update({**initial, **counters})

    def _counters(self) -> list[dict[str, Any]]:
        return [
            {k: _number(v) for k, v in vars(callback).items() if _is_counter(k, v)}
            for callback in self._callbacks
        ]


def _refuse_batch_hooks(callback: keras.callbacks.Callback) -> None:
    base = keras.callbacks.Callback
    hooks = [
        name for name in _BATCH_HOOKS if getattr(type(callback), name) is not getattr(base, name)
    ]
    if hooks:
        raise WorkloadError(
            f"{type(callback).__name__} wants to be called for each batch ({', '.join(hooks)}), "
            'but an epoch is one graph call: use loop="fit" for this workload, or a callback '
            "for epochs"
        )


def _is_counter(name: str, value: Any) -> bool:
    # Keras turns the sign of `min_delta` in the first epoch, also of one after a restore.
    return (
        not name.startswith("_")
        and name != "min_delta"
        and (value is None or isinstance(value, bool | int | float | str | np.number))
    )


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.number) else value
