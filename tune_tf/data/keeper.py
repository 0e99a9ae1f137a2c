"""Who loads the data of a node, once for all trials on it."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tune_tf.data.loads import LoadCache, Reads
from tune_tf.data.nested import leaves_of
from tune_tf.data.rows import as_arrays
from tune_tf.workload import Data, Workload

if TYPE_CHECKING:
    import ray

_SHARE_OF_STORE = 0.5
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Client:
    """A process of this node that uses the data.

    Args:
        pid: Its id.
        started: When it began, as ``psutil`` tells it: ids are given again.
    """

    pid: int
    started: float

    @classmethod
    def this_process(cls) -> "Client":
        """Return the process that asks."""
        process = psutil.Process()
        return cls(process.pid, process.create_time())

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        try:
            process = psutil.Process(self.pid)
            ended = process.status() == psutil.STATUS_ZOMBIE
            return not ended and process.create_time() == self.started
        except psutil.Error:
            return False


@dataclass(frozen=True)
class Kept:
    """Data in the object store of a node.

    Args:
        data: Ray's reference to :class:`~tune_tf.workload.Data` without test rows; None where they
            are no arrays, which every process has to load for itself.
        num_bytes: Size of the arrays.
    """

    data: "ray.ObjectRef[Data] | None"
    num_bytes: int


@dataclass
class _Shelf:
    """The data of one sweep.

    Args:
        cache: Its data.
        clients: The processes that asked for them.
        used: When one of those was last seen, by the keeper's clock.
    """

    cache: LoadCache[Kept]
    clients: set[Client]
    used: float


class DataKeeper:
    """Loads data once for each value that their loader reads, and owns them in the object store.

    It is a Ray actor, one a node. Who asks while data are being loaded waits for that one loading.
    Of a sweep's data those used longest ago are dropped where all together take more than half of
    the node's object store; Ray spills what does not fit. All are dropped once no process is left
    that asked for them, and the keeper ends itself when it has no more.

    Args:
        idle_s: Seconds that data outlive the processes that asked for them.
        clock: Seconds that only grow.
    """

    def __init__(self, idle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._loading = asyncio.Lock()
        self._shelves: dict[str, _Shelf] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    async def knows(self, data_id: str) -> bool:
        """Whether :meth:`learn` was called."""
        return data_id in self._shelves

    async def learn(self, data_id: str, workload: Workload, floatx: str) -> None:
        """Take over a workload.

        Args:
            data_id: Names its data; the same in all trials of a sweep.
            workload: Whose data.
            floatx: What floats become.
        """
        cache = LoadCache(
            lambda config: _load(workload, config, floatx),
            _store_bytes(),
            lambda kept: kept.num_bytes,
        )
        self._shelves.setdefault(data_id, _Shelf(cache, set(), self._clock()))

    async def load(
        self, data_id: str, config: Mapping[str, Any], client: Client
    ) -> tuple[Reads, Kept]:
        """Return the data of a config, and what their loader read of it.

        Args:
            data_id: Of data that it has learnt of.
            config: The trial's values.
            client: The process that asks.
        """
        shelf = self._shelves[data_id]
        shelf.clients.add(client)
        async with self._loading:
            return await asyncio.to_thread(shelf.cache.get_with_reads, config)

    def _watch(self) -> None:
        import ray

        me = ray.get_runtime_context().current_actor
        empty = False
        while not empty:
            time.sleep(min(_LOOK_EVERY_S, self._idle_s))
            self._drop_unused()
            empty = not self._shelves
        ray.kill(me)

    def _drop_unused(self) -> None:
        now = self._clock()
        for data_id, shelf in tuple(self._shelves.items()):
            if any(client.is_alive for client in tuple(shelf.clients)):
                shelf.used = now
            elif now - shelf.used >= self._idle_s:
                del self._shelves[data_id]


def _load(workload: Workload, config: Mapping[str, Any], floatx: str) -> Kept:
    import ray

    arrays = as_arrays(workload.load_data(config), floatx=floatx)
    if arrays is None:
        return Kept(None, 0)
    parts = (arrays.train, arrays.validation)
    num_bytes = sum(leaf.nbytes for part in parts if part for _, leaf in leaves_of("", part))
    return Kept(ray.put(arrays), num_bytes)


def _store_bytes() -> int:
    """Return how much of this node's object store may hold data that nobody uses."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    sizes = [
        node["Resources"].get("object_store_memory", 0)
        for node in ray.nodes()
        if node["NodeID"] == here
    ]
    return int(sum(sizes) * _SHARE_OF_STORE)
