"""Serialization of Keras callback state as JSON and arrays, without pickle.

Attributes other than plain state (files, models, custom objects) follow from the config.
"""

import contextlib
import hashlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np

from tune_tf.errors import CheckpointError

Arrays = dict[str, "np.ndarray[Any, Any]"]
"""Arrays by the digest of their content."""

_SCALARS = (type(None), bool, int, float, str)
_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_MAPPINGS = {kind.__name__: kind for kind in (dict, OrderedDict, Counter)}
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}

_NO_STATE = ("params", "min_delta")
"""Attributes set by Keras, which flips the sign of ``min_delta`` in the first epoch."""


@dataclass(frozen=True)
class CallbackState:
    """Callback attributes that changed since training began, by class name (see :func:`encode`)."""

    attributes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    arrays: Arrays = field(default_factory=dict, repr=False)

    @property
    def has_best_weights(self) -> bool:
        """Whether an EarlyStopping holds the weights of the best epoch."""
        return any(values.get("best_weights") for _, values in self.attributes)


class _EncodedAttribute(NamedTuple):
    value: Any
    arrays: Arrays


class CallbackStateTracker:
    """Tracker of changes in the state of callbacks since their ``on_train_begin``."""

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._initial = [_encode_attributes(each) for each in self._callbacks]

    def changes(self) -> CallbackState:
        """Return copies of the attributes that differ from the initial ones."""
        arrays: Arrays = {}
        changed = []
        for callback, initial in zip(self._callbacks, self._initial, strict=True):
            values = {}
            for name, (value, arrays_of_value) in _encode_attributes(callback).items():
                if name not in initial or initial[name].value != value:
                    values[name] = value
                    arrays |= arrays_of_value
            changed.append((type(callback).__name__, values))
        return CallbackState(changed, {digest: np.array(each) for digest, each in arrays.items()})

    def restore(self, state: CallbackState) -> None:
        """Restore the result of :meth:`changes` to callbacks matched by class name in order.

        Attributes that are not in the state get their initial values.

        Raises:
            CheckpointError: A callback changed an array of the state in place.
        """
        unmatched = list(state.attributes)
        for callback, initial in zip(self._callbacks, self._initial, strict=True):
            names = [name for name, _ in unmatched]
            target = dict(initial)
            if type(callback).__name__ in names:
                _, values = unmatched.pop(names.index(type(callback).__name__))
                target |= {k: _EncodedAttribute(v, state.arrays) for k, v in values.items()}
            try:
                _set_attributes(callback, target)
            except ValueError as error:
                raise CheckpointError(
                    f"the callbacks cannot be reset, since {error}: create a new array instead of "
                    "changing the one that on_train_begin or __init__ made"
                ) from error


def _encode_attributes(callback: keras.callbacks.Callback) -> dict[str, _EncodedAttribute]:
    """Return the state attributes of a callback with their arrays, uncopied."""
    attributes = {}
    for name, value in vars(callback).items():
        if name not in _NO_STATE:
            arrays: Arrays = {}
            with contextlib.suppress(TypeError, RecursionError):
                attributes[name] = _EncodedAttribute(encode(value, arrays), arrays)
    return attributes


def _set_attributes(
    callback: keras.callbacks.Callback, target: dict[str, _EncodedAttribute]
) -> None:
    current = _encode_attributes(callback)
    for name in current.keys() - target.keys():
        delattr(callback, name)
    for name, (value, arrays) in target.items():
        if name in current:
            is_different = current[name].value != value
        else:
            is_different = name not in vars(callback)  # others are no state
        if is_different:
            setattr(callback, name, decode(value, arrays))


def encode(value: Any, arrays: Arrays) -> Any:
    """Encode a value as JSON with digests for arrays, and add the arrays, uncopied.

    Raises:
        TypeError: The value is not a number, text, array or a container of these.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        array = np.asarray(value)
        digest = _digest(array)
        arrays[digest] = array
        return {"scalar" if isinstance(value, np.generic) else "array": digest}
    if kind in _SEQUENCES.values():
        parts = [encode(part, arrays) for part in value]
        return {kind.__name__: parts if kind in (list, tuple) else sorted(parts, key=repr)}
    if kind is deque:
        return {"deque": [value.maxlen, [encode(part, arrays) for part in value]]}
    if kind in _MAPPINGS.values() or kind is defaultdict:
        pairs = [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]
        if kind is not defaultdict:
            return {kind.__name__: pairs}
        if value.default_factory in _FACTORIES.values():
            return {"defaultdict": [value.default_factory.__name__, pairs]}
    raise TypeError(f"{kind.__name__} is not plain state")


def decode(value: Any, arrays: Arrays) -> Any:
    """Decode the output of :func:`encode` with copies of the arrays.

    Raises:
        ValueError: An array has been changed in place.
    """
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    if kind in ("array", "scalar"):
        array = arrays[parts]
        if _digest(array) != parts:
            raise ValueError("an array was changed in place")
        return array[()] if kind == "scalar" else array.copy()
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](decode(part, arrays) for part in parts)
    if kind == "deque":
        return deque([decode(part, arrays) for part in parts[1]], parts[0])
    pairs = parts[1] if kind == "defaultdict" else parts
    items = {decode(k, arrays): decode(v, arrays) for k, v in pairs}
    return (
        defaultdict(_FACTORIES[parts[0]], items) if pairs is not parts else _MAPPINGS[kind](items)
    )


def _digest(array: "np.ndarray[Any, Any]") -> str:
    head = f"{array.dtype}{array.shape}".encode()
    return hashlib.blake2b(head + array.tobytes(), digest_size=16).hexdigest()
