"""Loader that shares a workload's data among all trials on a node."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tune_tf.data.node_cache.node_actor import node_actor
from tune_tf.data.node_cache.recording_config import RecordingConfig
from tune_tf.data.node_cache.workload_copies import LOAD_DATA, Changes, WorkloadCopies
from tune_tf.data.prepare.leases import BEATS, ActorHeartbeat
from tune_tf.workload import Data, Workload

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_log = logging.getLogger(__name__)

KEEP_S = 120.0
"""Seconds that unused data stay cached: longer than the gap between two trials of a node."""
_TRIES = 3


class SharedLoads:
    """Loader of a workload's data that shares one copy per node.

    The arrays lie in the node's object store; each trial maps them read-only. A process that is not
    a Ray actor loads its own data, as does every process if the data are not arrays.

    Args:
        data_id: The same in all trials that share the data; None to share nothing.
        floatx: Dtype that shared floats are converted to.
        keep_s: Seconds that unused data stay cached.
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
        found = self._shared(config) if self._data_id and is_actor() else None
        if found is None:
            found = self._copies.run(LOAD_DATA, lambda copy: copy.load_data(config))
        data, changes = found
        self._copies.put(LOAD_DATA, changes, config)
        return data

    def _shared(self, config: Mapping[str, Any]) -> tuple[Data, Changes] | None:
        from ray.exceptions import ObjectLostError, RayActorError

        for _ in range(_TRIES):
            try:
                return self._from_cache(config)
            except (RayActorError, ObjectLostError) as error:
                _log.warning("The process that holds this node's data was lost: %s", error)
        return None

    def _from_cache(self, config: Mapping[str, Any]) -> tuple[Data, Changes] | None:
        import ray
        from ray.exceptions import RayTaskError

        from tune_tf.data.node_cache.node_cache import NodeCache

        cache: ActorHandle = node_actor(NodeCache, "data", self._keep_s)
        asker = ActorHeartbeat.to(cache, self._keep_s / BEATS, "keeper").asker
        if not ray.get(cache.knows.remote(self._data_id, asker)) and not self._teach(cache):
            return None
        plain = config.to_dict() if isinstance(config, RecordingConfig) else dict(config)
        try:
            reads, kept = ray.get(cache.load.remote(self._data_id, plain))
        except RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        if kept.data is None:
            return None
        if isinstance(config, RecordingConfig):
            config.note(reads)
        found: tuple[Data, Changes] = ray.get(kept.data)
        return found

    def _teach(self, cache: "ActorHandle") -> bool:
        import ray

        try:
            workload = ray.put(self._workload)
        except TypeError as error:
            _log.warning("Each trial loads its data: the workload cannot be shared: %s", error)
            return False
        ray.get(cache.learn.remote(self._data_id, workload, self._floatx))
        return True


def is_actor() -> bool:
    """Return whether this process is an actor of a Ray cluster, as a trial of a sweep is."""
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
