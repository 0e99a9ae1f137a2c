"""Immutable mapping and hashable keys."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

V_co = TypeVar("V_co", covariant=True)


class FrozenMapping(Mapping[str, V_co]):
    """Immutable, ordered, hashable and picklable mapping that equals a dict."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, V_co]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: str) -> V_co:
        """Return the value of a key."""
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys in order."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._entries)

    def __hash__(self) -> int:
        """Hash by content, regardless of order."""
        return hash(hashable(self._entries))

    def __repr__(self) -> str:
        """Return the ``repr`` of the equal dict."""
        return repr(self._entries)


def hashable(value: Any) -> Hashable:
    """Return a hashable key that is equal for equal values; a list equals a tuple.

    JSON and YAML do not distinguish the two, and a config may have passed through either.
    """
    if isinstance(value, Mapping):
        return frozenset((key, hashable(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return tuple(hashable(entry) for entry in value)
    if isinstance(value, set | frozenset):
        return frozenset(hashable(entry) for entry in value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[no-any-return]
