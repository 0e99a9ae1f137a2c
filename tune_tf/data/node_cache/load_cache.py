"""Cache of loaded data keyed by the config values that were read."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tune_tf.data.node_cache.recording_config import ConfigReads, ReadDigests, RecordingConfig

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, eq=False)
class _Entry(Generic[Loaded]):
    key: Hashable
    reads: ConfigReads
    loaded: Loaded


class LoadCache(Generic[Loaded]):
    """Cache of loaded data, keyed by the config values that the loader read.

    A loader that reads only ``config["image_size"]`` runs once per image size, whatever else
    differs between trials. Later reads by objects that the loader made count too; they use the
    config for which the data were last returned. A loader must depend only on its config.

    The least recently used data beyond ``max_size`` are dropped, the newest never. By default the
    size of a data set is 1.
    """

    def __init__(
        self,
        load: Callable[[RecordingConfig], Loaded],
        max_size: int = 2,
        size_of: Callable[[Loaded], int] = lambda loaded: 1,
    ) -> None:
        self._load = load
        self._max_size = max_size
        self._size_of = size_of
        self._entries: list[_Entry[Loaded]] = []  # the most recently used last

    def get(self, config: Mapping[str, Any], key: Hashable = None) -> Loaded:
        """Return the data for a config, loading them unless an earlier config read the same values.

        ``key`` is anything else that the data depend on.
        """
        return self.get_with_reads(config, key)[1]

    def get_with_reads(
        self, config: Mapping[str, Any], key: Hashable = None
    ) -> "tuple[ReadDigests, Loaded]":
        """Return the values that the loader read, and the data for a config."""
        matches = (each for each in self._entries if each.key == key and each.reads.match(config))
        entry = next(matches, None)
        if entry is None:
            reads = ConfigReads(config)
            entry = _Entry(key, reads, self._load(reads.recording))
        else:
            entry.reads.switch_to(config)
            self._entries.remove(entry)
        self._entries.append(entry)
        sizes = [self._size_of(entry.loaded) for entry in self._entries]
        while len(sizes) > 1 and sum(sizes) > self._max_size:
            del sizes[0], self._entries[0]
        for action in entry.reads.use_actions:
            action()
        return dict(entry.reads.digests), entry.loaded

    def discard(self, is_unusable: Callable[[Loaded], bool]) -> None:
        """Drop data that cannot be used any more."""
        self._entries = [entry for entry in self._entries if not is_unusable(entry.loaded)]
