"""Config dict that records which of its values are read."""

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

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
    """Record of the values read from a config through its ``recording``, a dict."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.digests: ReadDigests = {}
        self._config = copy.deepcopy(dict(config))  # the loader may change what it reads
        self.recording = RecordingConfig.of(self, ())

    def value(self, path: ConfigPath) -> Any:
        """Return a value of the config, or ``_ABSENT``."""
        return _at(self._config, path)

    def record(self, path: ConfigPath, *, whole: bool = False) -> None:
        """Record that a value was read; for a group, ``whole`` means everything in it."""
        if path not in self.digests or (whole and self.digests[path] == GROUP):
            self.digests[path] = _read_digest(self.value(path), whole=whole)


def matches(digests: ReadDigests, config: Mapping[str, Any]) -> bool:
    """Return whether recorded reads would give the same values in another config."""
    return all(
        known is not None and _read_digest(_at(config, path), whole=known != GROUP) == known
        for path, known in digests.items()
    )


class _Unread:
    """Placeholder of a value that has not been read by the config's own methods."""

    def __repr__(self) -> str:
        """Explain the remedy: compiled code shows this text."""
        return (
            "<a value of the config that was read without the config's methods, so that the read "
            "is not recorded, as dict.get(config, name) and some compiled libraries do: use "
            "config[name], or pass dict(config)>"
        )

    def _refuse(self, *arguments: Any) -> Any:
        raise WorkloadError(f"found {self!r}")

    __bool__ = __eq__ = __hash__ = __str__ = __format__ = __reduce_ex__ = _refuse


_UNREAD: Any = _Unread()


class RecordingConfig(dict[str, Any]):
    """Dict that records each value as read when it is accessed.

    Groups in it are recorded too. What accesses all values at once (iteration, ``len``, ``==``,
    copy, pickle, print) reads all. What is written to it is visible only here.
    """

    # The values of the dict itself are placeholders until they are read or written: compiled code
    # may bypass the methods.
    __slots__ = ("_path", "_reads")

    _reads: ConfigReads
    _path: ConfigPath

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Return a plain dict, as ``type(config)(...)`` should."""
        return dict(*arguments, **named)

    @classmethod
    def of(cls, reads: ConfigReads, path: ConfigPath) -> "RecordingConfig":
        """Return the group at a path."""
        group = dict.__new__(cls)
        group._reads, group._path = reads, path  # noqa: SLF001  its factory
        dict.update(group, dict.fromkeys(reads.value(path), _UNREAD))
        return group

    def __getitem__(self, key: Any) -> Any:
        """Return a value and record it as read."""
        path = (*self._path, key)
        value = dict.get(self, key, _ABSENT)
        if value is _UNREAD or value is _ABSENT:
            self._reads.record(path)
        if value is _UNREAD:
            value = copy.deepcopy(self._reads.value(path))
            if type(value) is dict:
                value = RecordingConfig.of(self._reads, path)
            dict.__setitem__(self, key, value)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __delitem__(self, key: Any) -> None:
        """Delete a key, only here; record its value as read."""
        _ = self[key]
        dict.__delitem__(self, key)

    def pop(self, key: Any, default: Any = _ABSENT, /) -> Any:
        """Remove a key, only here, and return its value; record it as read."""
        if default is not _ABSENT and key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def __reduce_ex__(self, protocol: Any = None) -> Any:
        """Pickle and copy as a plain dict; record all values as read."""
        return dict, (dict(self),)

    __reduce__ = __reduce_ex__

    def read_all(self) -> None:
        """Record all values as read."""
        self._reads.record(self._path, whole=True)
        for key in dict.keys(self):
            value = self[key]
            if isinstance(value, RecordingConfig):
                value.read_all()


def _reading_all(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of dict that records all values as read first."""

    def read_all_and_call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, RecordingConfig):
                argument.read_all()
        return method(*arguments)

    return read_all_and_call


for _name in (
    *("__iter__", "__reversed__", "__len__", "keys", "values", "items", "copy", "popitem"),
    *("__eq__", "__ne__", "__or__", "__ror__", "__repr__", "clear"),
):
    setattr(RecordingConfig, _name, _reading_all(getattr(dict, _name)))

for _name in ("get", "__contains__", "setdefault"):  # by the methods above
    setattr(RecordingConfig, _name, getattr(MutableMapping, _name))


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
