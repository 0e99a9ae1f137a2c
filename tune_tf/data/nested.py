"""Operations on nested dicts, tuples and lists of arrays, and their specs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Nested = Any
"""An array, or nested dicts, tuples and lists of arrays."""


def map_nested(change: Callable[..., Any], nested: Nested, *others: Nested) -> Nested:
    """Apply a function to every array, with those at its place in the others; keep the nesting."""
    if isinstance(nested, Mapping):
        return {
            key: map_nested(change, value, *(other[key] for other in others))
            for key, value in nested.items()
        }
    if is_sequence(nested):
        places = zip(nested, *others, strict=True)
        return type(nested)(map_nested(change, *values) for values in places)
    return change(nested, *others)


def is_sequence(nested: Nested) -> bool:
    """Return whether a value is a sequence of arrays; other lists are the rows of one array."""
    return isinstance(nested, tuple) or (
        isinstance(nested, list)
        and bool(nested)
        and all(isinstance(value, np.ndarray) and value.ndim for value in nested)
    )


def leaves_of(label: str, nested: Nested) -> "Iterator[tuple[str, np.ndarray[Any, Any]]]":
    """Yield each array with a label of its position."""
    if isinstance(nested, Mapping):
        for key, value in nested.items():
            yield from leaves_of(f"{label}[{key!r}]", value)
    elif is_sequence(nested):
        names = ("x", "y", "sample_weight") if "." not in label and "[" not in label else ()
        for i, value in enumerate(nested):
            suffix = f".{names[i]}" if i < len(names) else f"[{i}]"
            yield from leaves_of(f"{label}{suffix}", value)
    else:
        yield label, nested


def num_bytes(nested: Nested) -> int:
    """Return the size of all arrays."""
    return sum(leaf.nbytes for _, leaf in leaves_of("", nested))


def row_of(value: Any) -> Nested:
    """Convert the return value of a row function to nested arrays.

    Raises:
        TypeError: It is not an array, a number, or nested dicts or tuples of them.
    """
    row = map_nested(np.asarray, value)
    leaves = list(leaves_of("row", row))
    if not leaves or any(leaf.dtype == object for _, leaf in leaves):
        raise TypeError(
            "a row must be an array, a number, or nested dicts or tuples of them, "
            f"not {type(value).__name__}{'' if leaves else ' without any'}"
        )
    return row


def spec_of(row: Nested) -> Nested:
    """Return the types and shapes of nested arrays, such as ``float32[8, 8]``."""
    return map_nested(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", row)
