"""Cache of loaded data keyed by the config values that were read."""

import threading
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from yaml.representer import Representer, SafeRepresenter  # type: ignore[import-untyped]

from tune_tf.data.digest import digest
from tune_tf.errors import WorkloadError

Path = tuple[Any, ...]
"""Keys from the root of the config to a value or group."""

Reads = dict[Path, bytes | None]
"""Values that were read, by path: the digest of the value or of the whole group, :data:`GROUP`,
or :data:`MISSING`; None for a value that cannot be compared."""

MISSING, GROUP = b"missing", b"group"

_ABSENT: Any = object()


class ConfigReads:
    """Record of the values read from a config through its :class:`RecordingConfig`.

    If ``config`` is a :class:`RecordingConfig` itself, it records all reads too.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.lock = threading.RLock()
        self.noted: Reads = {}
        self.at_use: list[Callable[[], None]] = []
        self._groups: list[RecordingConfig] = []
        self._take(config)
        self.recording = self.group(())

    def fit(self, config: Mapping[str, Any]) -> bool:
        """Return whether all recorded reads give the same values in another config."""
        plain = plain_config(config)
        with self.lock:
            return all(
                noted is not None and _fingerprint(_at(plain, path), whole=noted != GROUP) == noted
                for path, noted in self.noted.items()
            )

    def switch_to(self, config: Mapping[str, Any]) -> None:
        """Switch later reads to another config, which must fit."""
        with self.lock:
            self._take(config)
            for path in self.noted:
                self._pass_on(path)
            for group in self._groups:
                group.fill()

    def value(self, path: Path) -> Any:
        """Return a value of the config, or ``_ABSENT`` if it is missing."""
        return _at(self._config, path)

    def note(self, path: Path, *, whole: bool) -> None:
        """Record that a value was read; for a group, ``whole`` means everything in it."""
        with self.lock:
            if path not in self.noted or (whole and self.noted[path] == GROUP):
                self.noted[path] = _fingerprint(self.value(path), whole=whole)
                self._pass_on(path)

    def group(self, path: Path) -> "RecordingConfig":
        """Return the group at a path as a dict that records reads."""
        made = dict.__new__(RecordingConfig)
        made._reads, made._path, made._gone = self, path, set()  # noqa: SLF001  its factory
        self._groups.append(made)
        made.fill()
        return made

    def _take(self, config: Mapping[str, Any]) -> None:
        self._config = _copied(plain_config(config))  # the caller may change the original
        self._outer = config if isinstance(config, RecordingConfig) else None

    def _pass_on(self, path: Path) -> None:
        """Report a read to the config that this one was made from."""
        if self._outer is not None:
            self._outer.note({path: self.noted[path]})


class _Unread:
    """Placeholder for a value that has not been read through the config's own methods."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Explain the remedy: compiled code shows this text, but may crash on an exception."""
        return (
            "<a value of the config that was read without the config's methods, so that the read "
            "is not recorded, as dict.get(config, name), obj.__dict__ = config and some "
            "compiled libraries do: use config[name], or pass dict(config)>"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # libraries look these up on any object
            raise AttributeError(name)
        return self._refuse()

    def _refuse(self, *arguments: Any, **named: Any) -> Any:
        raise WorkloadError(f"found {self!r}")

    __bool__ = __eq__ = __ne__ = __hash__ = __str__ = __format__ = __reduce_ex__ = _refuse


_UNREAD: Any = _Unread()


class RecordingConfig(dict[str, Any]):
    """Config dict that records each value as read when it is accessed.

    Nested groups are recorded too. Operations on many values at once (iteration, ``len``, ``==``,
    copy, pickle, print) record all values as read. Lists and arrays in it are copies, and values
    written to it are visible only here. Calling the class makes a plain dict.
    """

    # The underlying dict holds values that were read or written, and unusable placeholders for all
    # others: compiled code that bypasses a dict's methods must not read a value unrecorded.
    __slots__ = ("_gone", "_path", "_reads")

    _reads: ConfigReads
    _path: Path
    _gone: set[Any]  # deleted keys

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Return a plain dict; instances of this class are made by :meth:`ConfigReads.group`."""
        return dict(*arguments, **named)

    def note(self, reads: Reads) -> None:
        """Record the reads of another loader of the same values."""
        for path, noted in reads.items():
            self._reads.note((*self._path, *path), whole=noted != GROUP)

    def at_use(self, action: Callable[[], None]) -> None:
        """Register an action to run each time a result made from this config is used."""
        self._reads.at_use.append(action)

    def use_once(self) -> None:
        """Prevent the result made from this config from being reused by another trial."""
        self._reads.noted[()] = None

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain dicts without recording reads."""
        with self._reads.lock:
            return {key: self._plain(key, value) for key, value in dict.items(self)}

    def __getitem__(self, key: Any) -> Any:
        """Return a value and record it as read."""
        path = (*self._path, key)
        with self._reads.lock:
            value = dict.get(self, key, _ABSENT)
            if value is _UNREAD:
                self._reads.note(path, whole=False)
                value = self._reads.value(path)
                value = self._reads.group(path) if type(value) is dict else _copied(value)
                dict.__setitem__(self, key, value)
            elif value is _ABSENT and key not in self._gone:
                self._reads.note(path, whole=False)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a value that is visible only here."""
        with self._reads.lock:
            dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        """Delete a key, only here; record its value as read."""
        with self._reads.lock:
            _ = self[key]
            dict.__delitem__(self, key)
            self._gone.add(key)

    def pop(self, key: Any, default: Any = _ABSENT, /) -> Any:
        """Remove a key, only here, and return its value; record it as read."""
        with self._reads.lock:
            if key in self:
                value = self[key]
                del self[key]
                return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        """Return a value, writing a default that is visible only here; record the read."""
        with self._reads.lock:
            if key not in self:
                self[key] = default
            return self[key]

    def popitem(self) -> tuple[Any, Any]:
        """Remove the last key and return it with its value; record all values as read."""
        for key in list(self)[::-1]:
            return key, self.pop(key)
        raise KeyError("popitem(): dictionary is empty")

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        """Write values that are visible only here."""
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any = None) -> Any:
        """Pickle and copy as a plain dict; record all values as read."""
        return dict, (dict(self),)

    __reduce__ = __reduce_ex__

    def fill(self) -> None:
        """Synchronize the keys with the config, keeping values that were read or written."""
        known = {key: value for key, value in dict.items(self) if value is not _UNREAD}
        dict.clear(self)
        for key in self._reads.value(self._path):
            if key not in self._gone:
                dict.__setitem__(self, key, known.pop(key, _UNREAD))
        dict.update(self, known)

    def _plain(self, key: Any, value: Any) -> Any:
        if value is _UNREAD:
            return self._reads.value((*self._path, key))
        return value.to_dict() if isinstance(value, RecordingConfig) else value

    def read_all(self) -> None:
        """Record all values as read."""
        with self._reads.lock:
            self._reads.note(self._path, whole=True)
            for key in list(dict.keys(self)):
                value = self[key]
                if isinstance(value, RecordingConfig):
                    value.read_all()


def _reading_all(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a dict method so that it records all values as read first."""

    def read_and_do(*arguments: Any) -> Any:
        for each in arguments:
            if isinstance(each, RecordingConfig):
                each.read_all()
        return method(*arguments)

    return read_and_do


for _name in (
    *("__iter__", "__reversed__", "__len__", "keys", "values", "items", "copy"),
    *("__eq__", "__ne__", "__or__", "__ror__", "__repr__"),
):
    setattr(RecordingConfig, _name, _reading_all(getattr(dict, _name)))

for _name in ("get", "__contains__", "update", "clear"):  # by the methods above
    setattr(RecordingConfig, _name, getattr(MutableMapping, _name))

for _representer in (SafeRepresenter, Representer):  # PyYAML, which Ray uses, needs the exact class
    _representer.add_representer(RecordingConfig, SafeRepresenter.represent_dict)


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values of a config as plain dicts without recording reads."""
    return config.to_dict() if isinstance(config, RecordingConfig) else dict(config)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copied(each) for key, each in value.items()}
    if kind in (list, tuple):
        return kind(map(_copied, value))
    return value.copy() if kind in (set, np.ndarray) else value


def _at(config: Any, path: Path) -> Any:
    for key in path:
        if type(config) is not dict or key not in config:
            return _ABSENT
        config = config[key]
    return config


def _fingerprint(value: Any, *, whole: bool) -> bytes | None:
    if value is _ABSENT:
        return MISSING
    return GROUP if type(value) is dict and not whole else digest(value)


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

    Args:
        load: Loads data from a config.
        keep: Maximum total size; the least recently used data are dropped first, the newest never.
        size_of: Size of data in units of ``keep``; by default 1 per data set.
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
        self._entries: list[_Entry[Loaded]] = []  # the most recently used last

    def get(self, config: Mapping[str, Any], key: Hashable = None) -> Loaded:
        """Return the data for a config, loading them unless an earlier config read the same values.

        ``key`` is anything else that the data depend on.
        """
        return self.get_with_reads(config, key)[1]

    def get_with_reads(
        self, config: Mapping[str, Any], key: Hashable = None
    ) -> "tuple[Reads, Loaded]":
        """Return the values that the loader read, and the data for a config."""
        fitting = (each for each in self._entries if each.key == key and each.reads.fit(config))
        entry = next(fitting, None)
        if entry is None:
            reads = ConfigReads(config)
            entry = _Entry(key, reads, self._load(reads.recording))
        else:
            entry.reads.switch_to(config)
            self._entries.remove(entry)
        self._entries.append(entry)
        while len(self._entries) > 1 and self._size() > self._keep:
            del self._entries[0]
        for action in entry.reads.at_use:
            action()
        return dict(entry.reads.noted), entry.loaded

    def _size(self) -> int:
        return sum(self._size_of(entry.loaded) for entry in self._entries)
