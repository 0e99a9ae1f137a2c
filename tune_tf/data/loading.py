"""Loading of a trial's data, once per node for all trials that read the same values."""

import contextlib
import logging
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_tf.data.config_reads import ConfigReads, ReadDigests, matches
from tune_tf.data.digest import digest
from tune_tf.data.node_store import node_store
from tune_tf.data.rows import shareable
from tune_tf.workload import Data, Workload

_LOADED = ".loaded"
_Around = Callable[[], contextlib.AbstractContextManager[Any]]

_log = logging.getLogger(__name__)
_changed: "weakref.WeakValueDictionary[int, Workload]" = weakref.WeakValueDictionary()
"""Workloads by ``id`` whose attributes their ``load_data`` has changed."""


def has_loaded(workload: Workload) -> bool:
    """Return whether ``load_data`` has changed attributes of a trial's workload."""
    return _changed.get(id(workload)) is workload


@dataclass(frozen=True, eq=False)
class Loaded:
    """Data of a trial, and its workload as ``load_data`` has left it.

    ``key`` is equal for trials with the same data, and None for those with data of their own.
    """

    data: Data
    workload: Workload
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
        self._reads: dict[str, ReadDigests] = {}  # by key

    def load(
        self,
        workload: Workload,
        config: Mapping[str, Any],
        around: _Around = contextlib.nullcontext,
    ) -> Loaded:
        """Return the data of a config, and the workload after ``load_data``.

        Args:
            workload: A workload as before its first trial, which is not used further.
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
            return _run(workload, ConfigReads(config), around)
        return self._stored(key, workload, lambda: None)

    def _find(self, config: Mapping[str, Any]) -> str | None:
        """Return the key of data whose loader read the same values."""
        for path in self._store.folder.glob(f"{self._sweep_key}-*{_LOADED}"):
            key = path.name
            if key not in self._reads:
                self._reads[key] = self._store.get(key, lambda: None)[0]
            if matches(self._reads[key], config):
                return key
        return None

    def _load(
        self, workload: Workload, config: Mapping[str, Any], own: Path, around: _Around
    ) -> Loaded:
        reads = ConfigReads(config)
        loaded = _run(workload, reads, around)
        if (data := shareable(loaded.data, floatx=self._floatx)) is None:
            own.touch()
            return loaded
        if None in reads.digests.values():
            return replace(loaded, data=data)
        key = f"{self._sweep_key}-{uuid.uuid4().hex}{_LOADED}"
        changed = workload if has_loaded(workload) else None
        try:
            return self._stored(key, workload, lambda: (reads.digests, data, changed))
        except Exception as error:  # noqa: BLE001  pickling may raise anything
            text = "Each trial loads its data, since it or what load_data set cannot be pickled: %s"
            _log.warning(text, error)
            own.touch()
            return loaded

    def _stored(self, key: str, workload: Workload, compute: Callable[[], Any]) -> Loaded:
        _, data, changed = self._store.get(key, compute)
        if changed is None:
            return Loaded(data, workload, key)
        _changed[id(changed)] = changed
        return Loaded(data, changed, key)


def _run(workload: Workload, reads: ConfigReads, around: _Around) -> Loaded:
    before = digest(workload)
    with around():
        data = workload.load_data(reads.recording)
    if before is None or digest(workload) != before:
        _changed[id(workload)] = workload
    return Loaded(data, workload)
