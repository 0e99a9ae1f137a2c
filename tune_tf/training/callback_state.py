"""Serialization of Keras callback state as JSON and arrays, without pickle.

State is numbers, text, NumPy arrays and Python containers of them. Other attributes (files,
models, variables, custom objects) follow from the config or are not saved.
"""

import contextlib
import hashlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

Arrays = dict[str, "np.ndarray[Any, Any]"]
"""Arrays by the digest of their content."""

_SCALARS = (type(None), bool, int, float, str)
_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_MAPPINGS = {kind.__name__: kind for kind in (dict, OrderedDict, Counter)}
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}

NO_STATE = ("params", "min_delta")
"""Attributes set by Keras, which flips the sign of ``min_delta`` in the first epoch."""


@dataclass(frozen=True)
class CallbackState:
    """Callback attributes that changed since training began.

    Args:
        attributes: Class name and encoded attributes of each callback (see :func:`encode`).
        arrays: Arrays in the attributes.
    """

    attributes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    arrays: Arrays = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        callbacks: Sequence[keras.callbacks.Callback],
        initial: Sequence[dict[str, Any]],
    ) -> "CallbackState":
        """Return copies of the attributes that differ from the initial ones."""
        found: Arrays = {}
        changed = [
            (
                type(callback).__name__,
                {
                    k: v
                    for k, v in attributes_of(callback, found).items()
                    if before.get(k, ...) != v
                },
            )
            for callback, before in zip(callbacks, initial, strict=True)
        ]
        wanted = {digest for _, each in changed for digest in _digests(list(each.values()))}
        return cls(changed, {digest: np.array(found[digest]) for digest in wanted})

    def load_into(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        initial: Sequence[dict[str, Any]],
        initial_arrays: Arrays,
    ) -> None:
        """Load this state into callbacks, matched by class name in order.

        Attributes that are not in the state get their initial values.

        Raises:
            ValueError: A callback has changed an array in place.
        """
        left = list(self.attributes)
        arrays = initial_arrays | self.arrays
        for callback, before in zip(callbacks, initial, strict=True):
            name = type(callback).__name__
            index = next((i for i, (of, _) in enumerate(left) if of == name), None)
            saved = {} if index is None else left.pop(index)[1]
            _set_attributes(callback, {**before, **saved}, arrays)


def attributes_of(callback: keras.callbacks.Callback, arrays: Arrays) -> dict[str, Any]:
    """Return the encoded state attributes of a callback and add their arrays, uncopied."""
    found = {}
    for name, value in vars(callback).items():
        if name not in NO_STATE:
            with contextlib.suppress(TypeError, RecursionError):
                found[name] = encode(value, arrays)
    return found


def _set_attributes(
    callback: keras.callbacks.Callback, target: dict[str, Any], arrays: Arrays
) -> None:
    now = attributes_of(callback, {})
    for name in now.keys() - target.keys():
        delattr(callback, name)
    there = vars(callback)
    for name, value in target.items():
        if (name in now or name not in there) and now.get(name, ...) != value:
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


def _digests(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [
            digest
            for kind, part in value.items()
            for digest in ([part] if kind in ("array", "scalar") else _digests(part))
        ]
    if isinstance(value, list):
        return [digest for part in value for digest in _digests(part)]
    return []
