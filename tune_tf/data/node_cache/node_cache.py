"""Data loaded once per node: the actor that holds them and the loader that asks it."""

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tune_tf.data.leased_actor import LeasedActor, leased_actor
from tune_tf.data.nested import num_bytes
from tune_tf.data.node_cache.recording_config import (
    ConfigReads,
    ReadDigests,
    RecordingConfig,
    plain_config,
)
from tune_tf.data.node_cache.stored_data import StoredData
from tune_tf.data.node_cache.workload_copies import LOAD_DATA, AttributeChanges, WorkloadCopies
from tune_tf.data.prepare.preparation import object_store_bytes
from tune_tf.data.prepare.prepare_actor import collect_fetched_rows
from tune_tf.data.rows import as_arrays
from tune_tf.workload import Data, Workload

if TYPE_CHECKING:
    import ray

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


_log = logging.getLogger(__name__)

KEEP_S = 120.0
"""Seconds that unused data stay cached: longer than the gap between two trials of a node."""
_TRIES = 3
_SHARE_OF_STORE = 0.5


class NodeDataLoader:
    """Loader of a workload's data that shares one copy per node.

    The arrays lie in the node's object store, floats as ``floatx``; each trial maps them read-only.
    A process that is not a Ray actor loads its own data, as does every process if the data are not
    arrays. Trials with the same ``data_id`` share data; with None they share nothing.
    """

    def __init__(
        self,
        workload: Workload,
        data_id: str | None,
        floatx: str = "float32",
        keep_s: float = KEEP_S,
    ) -> None:
        self._workload = workload
        self._copies = WorkloadCopies(workload)
        self._data_id = data_id
        self._floatx = floatx
        self._keep_s = keep_s

    def load(self, config: Mapping[str, Any]) -> Data:
        """Return the data of a config.

        Raises:
            Exception: Any exception of ``load_data``.
        """
        shared = self._load_shared(config) if self._data_id and is_actor() else None
        data, changes = shared or self._copies.run(LOAD_DATA, lambda copy: copy.load_data(config))
        self._copies.apply(LOAD_DATA, changes, config)
        return data

    def load_anew(self, config: Mapping[str, Any]) -> Data:
        """Load data that were loaded for an equal config before, here and without any cache."""
        return self._copies.run(LOAD_DATA, lambda copy: copy.load_data(config))[0]

    def _load_shared(self, config: Mapping[str, Any]) -> tuple[Data, AttributeChanges] | None:
        from ray.exceptions import ObjectLostError, RayActorError

        for _ in range(_TRIES):
            try:
                return self._from_cache(config)
            except (RayActorError, ObjectLostError) as error:
                _log.warning("The process that holds this node's data was lost: %s", error)
        return None

    def _from_cache(self, config: Mapping[str, Any]) -> tuple[Data, AttributeChanges] | None:
        import ray
        from ray.exceptions import ObjectLostError, RayTaskError

        cache, user = leased_actor(NodeCache, "data", self._keep_s)
        if not ray.get(cache.lease.remote(self._data_id, user)):
            try:
                workload = ray.put(self._workload)
            except TypeError as error:
                _log.warning("Each trial loads its data: the workload cannot be shared: %s", error)
                return None
            ray.get(cache.register.remote(self._data_id, workload, self._floatx))
        try:
            reads, cached = ray.get(cache.load.remote(self._data_id, plain_config(config)))
        except RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        if cached.data is None:
            return None
        if isinstance(config, RecordingConfig):
            config.record_reads(reads)
        try:
            stored: StoredData = ray.get(cached.data)
            return stored.fetch(), stored.changes
        except ObjectLostError:
            ray.get(cache.discard.remote(self._data_id, [cached.data]))
            raise


def start_node_cache(data_id: str | None, keep_s: float = KEEP_S) -> None:
    """Start the process that holds this node's data, if it is to, without waiting for it."""
    if data_id and is_actor():
        cache, user = leased_actor(NodeCache, "data", keep_s)
        cache.lease.remote(data_id, user)


def is_actor() -> bool:
    """Return whether this process is an actor of a Ray cluster, as a trial of a sweep is."""
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


@dataclass(frozen=True, eq=False)
class CachedData:
    """Data without test rows in the object store of a node.

    ``data`` is None if they are not arrays or cannot be pickled; every process then loads its own.
    """

    data: "ray.ObjectRef[StoredData] | None"
    num_bytes: int


class NodeCache(LeasedActor):
    """Ray actor that loads data once per node and owns them in the object store.

    Data are loaded once for each set of values that their loader reads; requests that arrive during
    a load wait for it. The actor sees no GPU. The least recently used data of a sweep are dropped
    once they take more than half of the node's object store; Ray spills what does not fit.
    """

    def __init__(self, keep_s: float) -> None:
        super().__init__(keep_s)
        # An actor that reserves no GPU sees all of them, and TensorFlow would take their memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._loading = asyncio.Lock()
        self._caches: dict[str, LoadCache[CachedData]] = {}

    async def lease(self, data_id: str, user: str) -> bool:
        """Lease data to a process and return whether their workload is registered."""
        self._lease(data_id, user)
        return data_id in self._caches

    async def register(self, data_id: str, workload: Workload, floatx: str) -> None:
        """Register the workload that loads the data; their floats become ``floatx``."""
        if data_id in self._caches:
            return
        copies = WorkloadCopies(workload)
        self._caches[data_id] = LoadCache(
            lambda config: _load(copies, config, floatx),
            int(object_store_bytes() * _SHARE_OF_STORE),
            lambda cached: cached.num_bytes,
        )

    async def load(self, data_id: str, config: Mapping[str, Any]) -> tuple[ReadDigests, CachedData]:
        """Return the config values that the loader read, and the data."""
        cache = self._caches[data_id]
        async with self._loading:
            return await asyncio.to_thread(cache.get_with_reads, config)

    async def discard(self, data_id: str, lost: "list[ray.ObjectRef[StoredData]]") -> None:
        """Discard data that can no longer be read, such as those of a lost node."""
        async with self._loading:
            if data_id in self._caches:
                self._caches[data_id].discard(lambda cached: cached.data in lost)

    def _drop(self, key: str) -> None:
        self._caches.pop(key, None)


def _load(copies: WorkloadCopies, config: Mapping[str, Any], floatx: str) -> CachedData:
    import ray

    with collect_fetched_rows() as fetched:
        data, changes = copies.run(LOAD_DATA, lambda workload: workload.load_data(config))
        arrays = as_arrays(data, floatx=floatx)
        if arrays is None:
            return CachedData(None, 0)
        stored = StoredData.of(arrays, replace(changes, owner=None), fetched)
    size = sum(num_bytes(part) for part in (arrays.train, arrays.validation) if part)
    try:
        return CachedData(ray.put(stored), size)
    except Exception as error:  # noqa: BLE001  pickling an attribute may raise anything
        names = ", ".join(f"self.{name}" for name in sorted(changes.values))
        _log.warning("Each trial loads its data: load_data set %s: %s", names, error)
        return CachedData(None, 0)
