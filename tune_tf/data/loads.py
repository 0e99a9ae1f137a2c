"""Data loaded once for all configs that lead to the same data."""

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

Loaded = TypeVar("Loaded")

Reads = dict[tuple[str, ...], Any]
"""Path -> value of all that a loader read of a config."""


class _Special(enum.Enum):  # members stay the same objects in another process
    MISSING = enum.auto()
    GROUP = enum.auto()


_MISSING, _GROUP = _Special.MISSING, _Special.GROUP


class LoadCache(Generic[Loaded]):
    """Remembers what a loader made of a config, and which of its values it read.

    A loader that reads only ``config["image_size"]`` runs once for each image size, whatever else
    differs between trials. A loader must depend on nothing but its config.

    Args:
        load: Makes the data from a config.
        keep: Size of all data kept; those used longest ago go first, the newest always stay.
        size_of: Size of data in units of ``keep``; by default each data set counts as 1.
    """

    def __init__(
        self,
        load: Callable[[Mapping[str, Any]], Loaded],
        keep: int = 2,
        size_of: Callable[[Loaded], int] = lambda loaded: 1,
    ) -> None:
        self._load = load
        self._keep = keep
        self._size_of = size_of
        self._entries: OrderedDict[int, tuple[Reads, Loaded]] = OrderedDict()
        self._count = 0

    def get(self, config: Mapping[str, Any]) -> Loaded:
        """Return the data for a config, loading them if no earlier config read the same values."""
        return self.get_with_reads(config)[1]

    def get_with_reads(self, config: Mapping[str, Any]) -> "tuple[Reads, Loaded]":
        """Return the data for a config, behind the values that their loader read."""
        for number, (reads, loaded) in self._entries.items():
            if all(_same(_lookup(config, path), value) for path, value in reads.items()):
                self._entries.move_to_end(number)
                return reads, loaded
        reads = {}
        loaded = self._load(RecordingConfig(config, reads))
        self._count += 1
        self._entries[self._count] = reads, loaded
        while len(self._entries) > 1 and self._size > self._keep:
            self._entries.popitem(last=False)
        return reads, loaded

    @property
    def _size(self) -> int:
        return sum(self._size_of(loaded) for _, loaded in self._entries.values())


class RecordingConfig(Mapping[str, Any]):
    """A config that notes which of its values are read; looking at all of them notes them all.

    Args:
        config: The config to read from.
        reads: Receives path -> value of every read.
        path: Where ``config`` stands in the whole.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        reads: Reads,
        path: tuple[str, ...] = (),
    ) -> None:
        self._config = config
        self._reads = reads
        self._path = path

    def note(self, reads: Reads) -> None:
        """Note what another loader read of this config on behalf of this one."""
        self._reads.update({(*self._path, *path): value for path, value in reads.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the config as it was given; nothing counts as read."""
        return dict(self._config)

    def __getitem__(self, key: str) -> Any:
        """Return a value and note it; a nested group notes what is read of it."""
        path = (*self._path, key)
        value = self._config.get(key, _MISSING)
        if isinstance(value, Mapping):
            self._reads.setdefault(path, _GROUP)  # that it is there; what is in it, if looked at
            return RecordingConfig(value, self._reads, path)
        self._reads[path] = value
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        """Return whether the key is there; its value counts as read."""
        try:
            self[str(key)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys; the whole group counts as read."""
        self._reads[self._path] = dict(self._config)
        return iter(self._config)

    def __len__(self) -> int:
        """Count the keys; the whole group counts as read."""
        self._reads[self._path] = dict(self._config)
        return len(self._config)


def _lookup(config: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(config, Mapping) or key not in config:
            return _MISSING
        config = config[key]
    return config


def _same(first: Any, second: Any) -> bool:
    if second is _GROUP:
        return isinstance(first, Mapping)
    return first is second or (type(first) is type(second) and bool(first == second))
