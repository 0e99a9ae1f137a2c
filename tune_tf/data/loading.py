"""Loading of a trial's data, once per node for all trials that read the same values."""

import contextlib
import io
import logging
import pickle
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import write_atomically
from tune_tf.data.config_reads import ConfigReads, ReadDigests, matches
from tune_tf.data.digest import digest
from tune_tf.data.node_store import node_store
from tune_tf.data.rows import shareable
from tune_tf.workload import Data, Workload

_READS = ".reads"
_Around = Callable[[], contextlib.AbstractContextManager[Any]]

_log = logging.getLogger(__name__)
_changed: "weakref.WeakValueDictionary[int, Workload]" = weakref.WeakValueDictionary()
"""Workloads by ``id`` whose attributes their ``load_data`` has changed."""


def has_loaded(workload: Workload) -> bool:
    """Return whether ``load_data`` has changed attributes of a trial's workload."""
    return _changed.get(id(workload)) is workload


@dataclass(frozen=True, eq=False)
class Loaded:
    """Data of a trial; ``key`` is equal for trials with the same data, and None for no other's."""

    data: Data
    key: str | None = None


class DataLoader:
    """Loader of a sweep's data, which the processes of a node share.

    ``load_data`` runs once for each set of config values that it reads, in the process of the trial
    that asks first. Its arrays are read-only, floats as ``floatx``, and without test rows. What it
    returns for one trial alone, such as data sets, is loaded by each trial.

    Args:
        sweep_key: Key of the trials that share data; None for those of this loader.
        floatx: Type of floats.
    """

    def __init__(self, sweep_key: str | None = None, floatx: str = "float32") -> None:
        self._sweep_key = sweep_key or uuid.uuid4().hex
        self._floatx = floatx
        self._store = node_store()
        self._reads: dict[Path, ReadDigests] = {}

    def load(
        self,
        workload: Workload,
        config: Mapping[str, Any],
        around: _Around = contextlib.nullcontext,
    ) -> Loaded:
        """Return the data of a config, and set the workload to its state after ``load_data``.

        Args:
            workload: A workload as before its first trial.
            config: The config.
            around: Returns the context in which ``load_data`` runs, if it does.

        Raises:
            Exception: Any exception of ``load_data``.
        """
        own = self._store.folder / f"{self._sweep_key}.own"
        if (key := self._find(config)) is None and not own.exists():
            with self._store.locked(self._sweep_key):
                if (key := self._find(config)) is None:
                    return self._load(workload, config, own, around)
        if key is None:
            return Loaded(_run(workload, ConfigReads(config), around)[0])
        return Loaded(_unpacked(self._store.get(key, lambda: None), workload), key)

    def _find(self, config: Mapping[str, Any]) -> str | None:
        """Return the key of data whose loader read the same values."""
        for path in self._store.folder.glob(f"{self._sweep_key}-*{_READS}"):
            if path not in self._reads:
                self._reads[path] = pickle.loads(path.read_bytes())  # noqa: S301  of the same job
            if matches(self._reads[path], config):
                return path.stem
        return None

    def _load(
        self, workload: Workload, config: Mapping[str, Any], own: Path, around: _Around
    ) -> Loaded:
        reads = ConfigReads(config)
        data, changes = _run(workload, reads, around)
        if (shared := shareable(data, floatx=self._floatx)) is None:
            own.touch()
            return Loaded(data)
        try:
            packed = _packed(shared, changes, workload)
            _unpacked(packed, workload)
        except Exception as error:  # noqa: BLE001  pickling may raise anything
            names = ", ".join(f"self.{name}" for name in sorted(changes))
            subject = f"it, or {names} that load_data set," if names else "it"
            text = "Each trial loads its data, since %s cannot be pickled: %s"
            _log.warning(text, subject, error)
            own.touch()
            return Loaded(data)
        key = f"{self._sweep_key}-{uuid.uuid4().hex}"
        if None not in reads.digests.values():
            packed = self._store.get(key, lambda: packed)
            if key in self._store:
                reads_file = self._store.folder / f"{key}{_READS}"
                write_atomically(reads_file, pickle.dumps(dict(reads.digests)), on_disk=False)
        return Loaded(_unpacked(packed, workload), key)


_Packed = tuple[bytes, list[Any]]
"""Pickle of data and of changed attributes, and its buffers."""


def _run(workload: Workload, reads: ConfigReads, around: _Around) -> tuple[Data, dict[str, Any]]:
    """Return what ``load_data`` returns, and the attributes that it set, changed or removed."""
    before = {name: digest(value) for name, value in _attributes(workload).items()}
    with around():
        data = workload.load_data(reads.recording)
    after = _attributes(workload)
    changes = {
        name: value
        for name, value in after.items()
        if before.get(name) is None or before[name] != digest(value)
    }
    changes |= dict.fromkeys(before.keys() - after.keys(), _Removed)
    _mark(workload, changes)
    return data, changes


class _Removed:
    """Value of an attribute that is no more."""


def _mark(workload: Workload, changes: Mapping[str, Any]) -> None:
    if changes:
        _changed[id(workload)] = workload


def _attributes(workload: Workload) -> dict[str, Any]:
    """Return the attributes that are pickled with a workload."""
    state = workload.__getstate__()
    parts = state if isinstance(state, tuple) else (state,)  # a tuple for classes with slots
    return {name: value for part in parts if part for name, value in part.items()}


def _packed(data: Data, changes: Mapping[str, Any], workload: Workload) -> _Packed:
    from ray import cloudpickle  # unlike pickle, it supports functions defined in a script

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> str | None:
            return "workload" if obj is workload else None

    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    Pickler(file, protocol=5, buffer_callback=buffers.append).dump((data, dict(changes)))
    return file.getvalue(), buffers


def _unpacked(packed: _Packed, workload: Workload) -> Data:
    """Return the data, and apply the changes to the workload."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return workload

    content, buffers = packed
    read_only = [memoryview(buffer).toreadonly() for buffer in buffers]
    data, changes = Unpickler(io.BytesIO(content), buffers=read_only).load()
    for name, value in changes.items():
        if value is not _Removed:
            object.__setattr__(workload, name, value)
        elif name in vars(workload):
            object.__delattr__(workload, name)
    _mark(workload, changes)
    return data  # type: ignore[no-any-return]
