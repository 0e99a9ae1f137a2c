"""Hashable keys of values that may hold lists and mappings."""

from collections.abc import Hashable, Mapping
from typing import Any


def hashable(value: Any) -> Hashable:
    """Return a hashable key that is equal for equal values; a list equals a tuple.

    JSON and YAML do not distinguish the two, and a config may have passed through either.
    """
    if isinstance(value, Mapping):
        return frozenset((key, hashable(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return tuple(hashable(entry) for entry in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]
