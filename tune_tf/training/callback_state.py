"""State of Keras callbacks as JSON and arrays: saved, restored, compared, and nothing pickled.

Numbers, text, arrays of NumPy and Python's own containers of them are state. What else a callback
has (files, models, variables, objects of its own) follows from its config, or is not saved.
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
"""Arrays by a digest of what is in them."""

_SCALARS = (type(None), bool, int, float, str)
_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_MAPPINGS = {kind.__name__: kind for kind in (dict, OrderedDict, Counter)}
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}

NO_STATE = ("params", "min_delta")
"""Attributes that Keras sets by itself; it turns a sign in the first epoch after a restore too."""


@dataclass(frozen=True)
class CallbackState:
    """What the callbacks of a trial have changed since training began.

    Args:
        attributes: Of each callback its class's name, and its attributes as :func:`encode` gives
            them.
        arrays: Those in the attributes.
    """

    attributes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    arrays: Arrays = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        callbacks: Sequence[keras.callbacks.Callback],
        initial: Sequence[dict[str, Any]],
    ) -> "CallbackState":
        """Return copies of what differs from attributes as they were before."""
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
        """Set callbacks to this state; each takes that of the next one of its class's name.

        Args:
            callbacks: Those of a trial that has begun.
            initial: Their attributes as they were then, for what is not in the state.
            initial_arrays: Those in them.

        Raises:
            ValueError: One has since changed an array in place.
        """
        left = list(self.attributes)
        arrays = initial_arrays | self.arrays
        for callback, before in zip(callbacks, initial, strict=True):
            name = type(callback).__name__
            index = next((i for i, (of, _) in enumerate(left) if of == name), None)
            saved = {} if index is None else left.pop(index)[1]
            _set_attributes(callback, {**before, **saved}, arrays)


def attributes_of(callback: keras.callbacks.Callback, arrays: Arrays) -> dict[str, Any]:
    """Return the attributes of a callback that are state, encoded.

    Args:
        callback: Whose.
        arrays: Takes up those in the attributes; they are no copies.
    """
    found = {}
    for name, value in vars(callback).items():
        if name not in NO_STATE:
            with contextlib.suppress(TypeError, RecursionError):
                found[name] = encode(value, arrays)
    return found


def _set_attributes(
    callback: keras.callbacks.Callback, target: dict[str, Any], arrays: Arrays
) -> None:
    """Give a callback these attributes, leaving alone what is no state now."""
    now = attributes_of(callback, {})
    for name in now.keys() - target.keys():
        delattr(callback, name)
    there = vars(callback)
    for name, value in target.items():
        if (name in now or name not in there) and now.get(name, ...) != value:
            setattr(callback, name, decode(value, arrays))


def encode(value: Any, arrays: Arrays) -> Any:
    """Return a value as JSON, in which digests stand for arrays.

    Args:
        value: A number, text, array, or container of such.
        arrays: Takes up the arrays, which are no copies.

    Raises:
        TypeError: It is something else, or has it inside.
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
    raise TypeError(f"{kind.__name__} is no plain state")


def decode(value: Any, arrays: Arrays) -> Any:
    """Return what :func:`encode` was given; arrays are copies.

    Raises:
        ValueError: An array was changed since.
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
    """Return the digests in an encoded value, or in a list of such."""
    if isinstance(value, dict):
        return [
            digest
            for kind, part in value.items()
            for digest in ([part] if kind in ("array", "scalar") else _digests(part))
        ]
    if isinstance(value, list):
        return [digest for part in value for digest in _digests(part)]
    return []
