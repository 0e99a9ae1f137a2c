"""Actor that loads data once per node for all trials on it."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tune_tf.data.nested import leaves_of
from tune_tf.data.node_cache.load_cache import LoadCache
from tune_tf.data.node_cache.recording_config import Reads
from tune_tf.data.node_cache.workload_copies import LOAD_DATA, Changes, WorkloadCopies
from tune_tf.data.prepare.leases import BEATS, Leases, end_when_unwanted
from tune_tf.data.rows import as_arrays
from tune_tf.workload import Data, Workload

if TYPE_CHECKING:
    import ray

_log = logging.getLogger(__name__)

_SHARE_OF_STORE = 0.5


@dataclass(frozen=True)
class CachedData:
    """Reference to data in the object store of a node, with their size.

    Args:
        data: Reference to :class:`~tune_tf.workload.Data` without test rows and to the attributes
            that the loader set on the workload. None if the data are not arrays or cannot be
            pickled; every process then loads its own.
    """

    data: "ray.ObjectRef[tuple[Data, Changes]] | None"
    num_bytes: int


class NodeCache:
    """Ray actor that loads data once per node and owns them in the object store.

    Data are loaded once for each set of values that their loader reads; requests that arrive during
    a load wait for it. The actor sees no GPU. The least recently used data of a sweep are dropped
    once they take more than half of the node's object store; Ray spills what does not fit. Data are
    dropped when no process that requested them is alive, and the actor exits when it has none left.

    Args:
        keep_s: Seconds that data outlive the last heartbeat of the processes that requested them.
    """

    def __init__(self, keep_s: float) -> None:
        # An actor that reserves no GPU sees all of them, and TensorFlow would take their memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._keep_s = keep_s
        self._leases = Leases(keep_s)
        self._loading = asyncio.Lock()
        self._caches: dict[str, LoadCache[CachedData]] = {}
        self._watch: asyncio.Future[None] | None = None

    async def knows(self, data_id: str, asker: str) -> bool:
        """Return whether :meth:`learn` was called for these data, and lease them to the process."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(
                end_when_unwanted(
                    self._leases, self._keep_s / BEATS, lambda key: self._caches.pop(key, None)
                )
            )
        self._leases.want(data_id, asker)
        return data_id in self._caches

    async def learn(self, data_id: str, workload: Workload, floatx: str) -> None:
        """Register the workload that loads the data; their floats become ``floatx``."""
        if data_id in self._caches:
            return
        copies = WorkloadCopies(workload)
        self._caches[data_id] = LoadCache(
            lambda config: _load(copies, config, floatx),
            _store_bytes(),
            lambda kept: kept.num_bytes,
        )

    async def load(self, data_id: str, config: Mapping[str, Any]) -> tuple[Reads, CachedData]:
        """Return the config values that the loader read, and the data."""
        cache = self._caches[data_id]
        async with self._loading:
            return await asyncio.to_thread(cache.get_with_reads, config)

    async def data_ids(self) -> list[str]:
        """Return the identifiers of all registered data."""
        return list(self._caches)

    async def hear(self, asker: str) -> None:
        """Record a heartbeat of a process."""
        self._leases.hear(asker)


def _load(copies: WorkloadCopies, config: Mapping[str, Any], floatx: str) -> CachedData:
    import ray

    data, changes = copies.run(LOAD_DATA, lambda workload: workload.load_data(config))
    arrays = as_arrays(data, floatx=floatx)
    if arrays is None:
        return CachedData(None, 0)
    parts = (arrays.train, arrays.validation)
    num_bytes = sum(leaf.nbytes for part in parts if part for _, leaf in leaves_of("", part))
    try:
        return CachedData(ray.put((arrays, replace(changes, owner=None))), num_bytes)
    except Exception as error:  # noqa: BLE001  pickling an attribute may raise anything
        names = ", ".join(f"self.{name}" for name in sorted(changes.values))
        _log.warning("Each trial loads its data: load_data set %s: %s", names, error)
        return CachedData(None, 0)


def _store_bytes() -> int:
    """Return how many bytes of this node's object store unused data may occupy."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    sizes = [
        node["Resources"].get("object_store_memory", 0)
        for node in ray.nodes()
        if node["NodeID"] == here
    ]
    return int(sum(sizes) * _SHARE_OF_STORE)
