"""Operations on nested dicts, tuples and lists of arrays."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Nested = Any
"""An array, or nested dicts, tuples and lists of arrays."""


def map_nested(change: Callable[[Any], Any], nested: Nested) -> Nested:
    """Apply a function to every array and keep the nesting."""
    if isinstance(nested, Mapping):
        return {key: map_nested(change, value) for key, value in nested.items()}
    if is_sequence(nested):
        return type(nested)(map_nested(change, value) for value in nested)
    return change(nested)


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
        names = ("x", "y", "sample_weight") if "." not in label and "[" not in label else None
        for i, value in enumerate(nested):
            yield from leaves_of(f"{label}.{names[i]}" if names else f"{label}[{i}]", value)
    else:
        yield label, nested
