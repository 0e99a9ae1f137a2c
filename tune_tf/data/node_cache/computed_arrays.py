"""ArrayList that are computed once per node, by whichever process needs them first."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from tune_tf.atomic_files import locked
from tune_tf.data.leased_actor import LeasedActor, leased_actor
from tune_tf.data.node_cache.node_cache import KEEP_S, is_actor
from tune_tf.data.prepare.preparation import object_store_bytes

if TYPE_CHECKING:
    import ray

ArrayList = list["np.ndarray[Any, Any]"]

_NAME = "computed"
_SHARE_OF_MEMORY = 0.5


def max_shared_bytes() -> float:
    """Return the bytes of this node's object store that computed arrays may take."""
    return _SHARE_OF_MEMORY * object_store_bytes()


class ComputedArrays:
    """Cache of computed arrays, which the processes of a node share.

    They lie in the node's object store and are read-only. A process that is not a Ray actor keeps
    its own.

    Args:
        keep_s: Seconds that unused arrays are kept.
    """

    def __init__(self, keep_s: float = KEEP_S) -> None:
        self._keep_s = keep_s
        self._own: dict[str, ArrayList] = {}

    @property
    def max_bytes(self) -> float:
        """Bytes that the arrays of a key may take."""
        if is_actor():
            return max_shared_bytes()
        return _SHARE_OF_MEMORY * float(psutil.virtual_memory().available)

    def get(self, key: str, compute: Callable[[], ArrayList]) -> ArrayList:
        """Return the arrays of a key, which are computed if no process of the node did it before.

        Others that ask meanwhile wait; if the computing process ends, the next one computes.
        """
        if not is_actor():
            if key not in self._own:
                self._own = {key: compute()}
            return self._own[key]
        import ray

        try:
            cache, user = leased_actor(ArrayCache, _NAME, self._keep_s)
            if (found := ray.get(cache.find.remote(key, user))) is not None:
                return list(ray.get(found[0]))
            with locked(Path(tempfile.gettempdir(), f"tune_tf-{key[:64]}.lock")):
                if (found := ray.get(cache.find.remote(key, user))) is None:
                    found = ray.get(cache.add.remote(key, compute()))
                return list(ray.get(found[0]))
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
            return compute()


class ArrayCache(LeasedActor):
    """Ray actor that owns computed arrays in the object store of its node.

    The least recently used ones are dropped once they take more than half of the store.
    """

    def __init__(self, keep_s: float) -> None:
        super().__init__(keep_s)
        self._found: dict[
            str, tuple[ray.ObjectRef[ArrayList], int]
        ] = {}  # the most recently used last

    async def find(self, key: str, user: str) -> "list[ray.ObjectRef[ArrayList]] | None":
        """Lease arrays to a process; return a reference to them, or None."""
        self._lease(key, user)
        if key not in self._found:
            return None
        self._found[key] = self._found.pop(key)
        return [self._found[key][0]]

    async def add(self, key: str, arrays: ArrayList) -> "list[ray.ObjectRef[ArrayList]]":
        """Keep arrays and return a reference to them."""
        import ray

        reference = await asyncio.to_thread(ray.put, arrays)
        self._found[key] = reference, sum(each.nbytes for each in arrays)
        limit = max_shared_bytes()
        while len(self._found) > 1 and sum(size for _, size in self._found.values()) > limit:
            del self._found[next(iter(self._found))]
        return [reference]

    def _drop(self, key: str) -> None:
        self._found.pop(key, None)
