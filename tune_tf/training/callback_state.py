"""Plain state of Keras callbacks, pickled attribute by attribute.

Attributes other than plain state (files, models, custom objects) follow from the config. What is
read back may be of the same few types only, so that a checkpoint runs no code.
"""

import contextlib
import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import ml_dtypes  # comes with TensorFlow
import numpy as np

_SCALARS = (type(None), bool, int, float, str)
_CONTAINERS = (list, tuple, set, frozenset, deque, dict, OrderedDict, Counter, defaultdict)
_LOADED = {
    *("ndarray", "dtype", "scalar", "_reconstruct", "_frombuffer"),
    *(name for name, kind in vars(ml_dtypes).items() if isinstance(kind, type)),
    *(kind.__name__ for kind in (*_SCALARS, *_CONTAINERS)),
}
_LOADED_FROM = ("builtins", "collections", "numpy", "ml_dtypes")

_NO_STATE = ("params", "min_delta")
"""Attributes set by Keras, which flips the sign of ``min_delta`` in the first epoch."""

Attributes = dict[str, bytes]
"""Pickled attributes of a callback, by name."""


@dataclass(frozen=True)
class CallbackState:
    """Attributes that changed since training began, of each callback by its class name."""

    attributes: list[tuple[str, Attributes]] = field(default_factory=list)

    @property
    def has_best_weights(self) -> bool:
        """Whether an EarlyStopping holds the weights of the best epoch."""
        return any("best_weights" in values for _, values in self.attributes)


class CallbackStateTracker:
    """Tracker of changes in the state of callbacks since their ``on_train_begin``."""

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._initial = [_attributes_of(each) for each in self._callbacks]

    def changes(self) -> CallbackState:
        """Return copies of the attributes that differ from the initial ones."""
        return CallbackState(
            [
                (type(each).__name__, dict(_attributes_of(each).items() - initial.items()))
                for each, initial in zip(self._callbacks, self._initial, strict=True)
            ]
        )

    def restore(self, state: CallbackState) -> None:
        """Restore the result of :meth:`changes` to callbacks matched by class name in order.

        Attributes that are not in the state get their initial values.
        """
        unmatched = list(state.attributes)
        for callback, initial in zip(self._callbacks, self._initial, strict=True):
            target, names = dict(initial), [name for name, _ in unmatched]
            if type(callback).__name__ in names:
                target |= unmatched.pop(names.index(type(callback).__name__))[1]
            current = _attributes_of(callback)
            for name in current.keys() - target.keys():
                delattr(callback, name)
            for name, value in target.items() - current.items():
                if name in current or name not in vars(callback):  # others are no state
                    setattr(callback, name, load_plain(value))


def _attributes_of(callback: keras.callbacks.Callback) -> Attributes:
    """Return the plain state of a callback."""
    attributes = {}
    for name, value in vars(callback).items():
        # A container in itself is no plain state, and the factory of a defaultdict may be none.
        with contextlib.suppress(RecursionError, pickle.PicklingError, AttributeError):
            if name not in _NO_STATE and is_plain(value):
                attributes[name] = pickle.dumps(value)
    return attributes


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, text, array or a container of these."""
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return not value.dtype.hasobject
    if type(value) not in _CONTAINERS:
        return type(value) in _SCALARS
    if getattr(value, "default_factory", None) not in (None, *_SCALARS, *_CONTAINERS):
        return False
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value
    return all(map(is_plain, parts))


def load_plain(pickled: bytes) -> Any:
    """Return what :func:`is_plain` allows.

    Raises:
        pickle.UnpicklingError: It is anything else.
    """
    return _PlainUnpickler(io.BytesIO(pickled)).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".", maxsplit=1)[0] in _LOADED_FROM and name in _LOADED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no plain state")
