"""Config dict that records which of its values are read."""

import threading
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
from yaml.representer import Representer, SafeRepresenter  # type: ignore[import-untyped]

from tune_tf.data.digest import digest
from tune_tf.errors import WorkloadError

ConfigPath = tuple[Any, ...]
"""Keys from the root of the config to a value or group."""

ReadDigests = dict[ConfigPath, bytes | None]
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
        self.digests: ReadDigests = {}
        self.use_actions: list[Callable[[], None]] = []
        self._groups: list[RecordingConfig] = []
        self._set_config(config)
        self.recording = self.make_group(())

    def match(self, config: Mapping[str, Any]) -> bool:
        """Return whether all recorded reads give the same values in another config."""
        plain = plain_config(config)
        with self.lock:
            return all(
                known is not None and _read_digest(_at(plain, path), whole=known != GROUP) == known
                for path, known in self.digests.items()
            )

    def switch_to(self, config: Mapping[str, Any]) -> None:
        """Switch later reads to another config, which must match."""
        with self.lock:
            self._set_config(config)
            for path in self.digests:
                self._record_outside(path)
            for group in self._groups:
                group.fill()

    def value(self, path: ConfigPath) -> Any:
        """Return a value of the config, or ``_ABSENT`` if it is missing."""
        return _at(self._config, path)

    def record(self, path: ConfigPath, *, whole: bool) -> None:
        """Record that a value was read; for a group, ``whole`` means everything in it."""
        with self.lock:
            if path not in self.digests or (whole and self.digests[path] == GROUP):
                self.digests[path] = _read_digest(self.value(path), whole=whole)
                self._record_outside(path)

    def make_group(self, path: ConfigPath) -> "RecordingConfig":
        """Return the group at a path as a dict that records reads."""
        group = dict.__new__(RecordingConfig)
        group._reads, group._path, group._deleted = self, path, set()  # noqa: SLF001  its factory
        self._groups.append(group)
        group.fill()
        return group

    def _set_config(self, config: Mapping[str, Any]) -> None:
        self._config = _copy(plain_config(config))  # the caller may change the original
        self._outer = config if isinstance(config, RecordingConfig) else None

    def _record_outside(self, path: ConfigPath) -> None:
        """Record a read in the config that this one was made from."""
        if self._outer is not None:
            self._outer.record_reads({path: self.digests[path]})


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
    __slots__ = ("_deleted", "_path", "_reads")

    _reads: ConfigReads
    _path: ConfigPath
    _deleted: set[Any]  # keys

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Return a plain dict; instances of this class are made by :class:`ConfigReads`."""
        return dict(*arguments, **named)

    def record_reads(self, digests: ReadDigests) -> None:
        """Record the reads of another loader of the same values."""
        for path, value_digest in digests.items():
            self._reads.record((*self._path, *path), whole=value_digest != GROUP)

    def on_use(self, action: Callable[[], None]) -> None:
        """Register an action to run each time a result made from this config is used."""
        self._reads.use_actions.append(action)

    def use_once(self) -> None:
        """Prevent the result made from this config from being reused by another trial."""
        self._reads.digests[()] = None

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
                self._reads.record(path, whole=False)
                value = self._reads.value(path)
                value = self._reads.make_group(path) if type(value) is dict else _copy(value)
                dict.__setitem__(self, key, value)
            elif value is _ABSENT and key not in self._deleted:
                self._reads.record(path, whole=False)
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
            self._deleted.add(key)

    def pop(self, key: Any, default: Any = _ABSENT, /) -> Any:
        """Remove a key, only here, and return its value; record it as read."""
        with self._reads.lock:
            if default is not _ABSENT and key not in self:
                return default
            value = self[key]
            del self[key]
            return value

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        """Return a value, writing a default that is visible only here; record the read."""
        with self._reads.lock:
            return MutableMapping.setdefault(self, key, default)

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
        values = {key: value for key, value in dict.items(self) if value is not _UNREAD}
        dict.clear(self)
        for key in self._reads.value(self._path):
            if key not in self._deleted:
                dict.__setitem__(self, key, values.pop(key, _UNREAD))
        dict.update(self, values)

    def _plain(self, key: Any, value: Any) -> Any:
        if value is _UNREAD:
            return self._reads.value((*self._path, key))
        return value.to_dict() if isinstance(value, RecordingConfig) else value

    def read_all(self) -> None:
        """Record all values as read."""
        with self._reads.lock:
            self._reads.record(self._path, whole=True)
            for key in list(dict.keys(self)):
                value = self[key]
                if isinstance(value, RecordingConfig):
                    value.read_all()


def _reading_all(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a dict method so that it records all values as read first."""

    def read_all_and_call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, RecordingConfig):
                argument.read_all()
        return method(*arguments)

    return read_all_and_call


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


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy(each) for key, each in value.items()}
    if kind in (list, tuple):
        return kind(map(_copy, value))
    return value.copy() if kind in (set, np.ndarray) else value


def _at(config: Any, path: ConfigPath) -> Any:
    for key in path:
        if type(config) is not dict or key not in config:
            return _ABSENT
        config = config[key]
    return config


def _read_digest(value: Any, *, whole: bool) -> bytes | None:
    if value is _ABSENT:
        return MISSING
    return GROUP if type(value) is dict and not whole else digest(value)
