"""Data loaded once for all configs that lead to the same data."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tune_tf.data.node_cache.recording_config import ConfigReads, Reads, RecordingConfig

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, eq=False)
class _Entry(Generic[Loaded]):
    key: Hashable
    reads: ConfigReads
    loaded: Loaded


class LoadCache(Generic[Loaded]):
    """Remembers what a loader made of a config, and which of its values it read.

    A loader that reads only ``config["image_size"]`` runs once for each image size, whatever else
    differs between trials. What is read of the config later, by what the loader made, counts too:
    it is read of the config that the data were returned for last. A loader must depend on nothing
    but its config.

    Args:
        load: Makes the data from a config, which it gets as a
            :class:`~tune_tf.data.node_cache.recording_config.RecordingConfig`.
        keep: Size of all data kept; those used longest ago go first, the newest always stay.
        size_of: Size of data in units of ``keep``; by default each data set counts as 1.
    """

    def __init__(
        self,
        load: Callable[[RecordingConfig], Loaded],
        keep: int = 2,
        size_of: Callable[[Loaded], int] = lambda loaded: 1,
    ) -> None:
        self._load = load
        self._keep = keep
        self._size_of = size_of
        self._entries: OrderedDict[int, _Entry[Loaded]] = OrderedDict()
        self._count = 0

    def get(self, config: Mapping[str, Any], key: Hashable = None) -> Loaded:
        """Return the data for a config, loading them if no earlier config read the same values.

        Args:
            config: The trial's values.
            key: What else the data depend on.
        """
        return self.get_with_reads(config, key)[1]

    def get_with_reads(
        self, config: Mapping[str, Any], key: Hashable = None
    ) -> "tuple[Reads, Loaded]":
        """Return the data for a config, behind the values that their loader read."""
        for number, entry in self._entries.items():
            if entry.key == key and entry.reads.fit(config):
                entry.reads.go_on(config)
                self._entries.move_to_end(number)
                return self._used(entry)
        reads = ConfigReads(config)
        entry = _Entry(key, reads, self._load(reads.recording))
        self._count += 1
        self._entries[self._count] = entry
        while len(self._entries) > 1 and self._size > self._keep:
            self._entries.popitem(last=False)
        return self._used(entry)

    @staticmethod
    def _used(entry: _Entry[Loaded]) -> "tuple[Reads, Loaded]":
        for action in entry.reads.at_use:
            action()
        return dict(entry.reads.noted), entry.loaded

    @property
    def _size(self) -> int:
        return sum(self._size_of(entry.loaded) for entry in self._entries.values())
