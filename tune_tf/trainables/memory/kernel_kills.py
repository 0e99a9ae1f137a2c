"""Detection of processes that the kernel killed because a node ran out of memory.

Ray only reports that a process died; Linux counts its out-of-memory kills in ``/proc/vmstat``.
"""

from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_COUNTER = "oom_kill "
_VMSTAT = Path("/proc/vmstat")
_TIMEOUT_S = 10.0


def num_kills() -> int:
    """Return the out-of-memory kills of this machine's kernel; 0 if it does not report them."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next(
        (int(line.removeprefix(_COUNTER)) for line in lines if line.startswith(_COUNTER)), 0
    )


class KernelKills:
    """Counter of new out-of-memory kills on the cluster's nodes.

    It reads the driver's count directly and other nodes' by one task each, whose result is awaited
    only after a process has died.
    """

    def __init__(self) -> None:
        self._here = num_kills()
        self._before: dict[str, int] = {}
        self._asked: dict[str, ray.ObjectRef] = {}

    def look(self) -> None:
        """Request the counts of new nodes, without waiting."""
        for node_id in _others() - {*self._before, *self._asked}:
            self._asked[node_id] = _ask(node_id)

    def have_risen(self) -> bool:
        """Return whether a count has risen since the last look, among the nodes that respond."""
        before, self._here = self._here, num_kills()
        risen = self._here > before
        first, self._asked = self._asked, {}
        for node_id in _others():
            known = _answer(first[node_id]) if node_id in first else self._before.get(node_id)
            now = _answer(_ask(node_id))
            if known is not None and now is not None:
                risen |= now > known
            if now is not None:
                self._before[node_id] = now
        return risen


def _others() -> set[str]:
    """Return the ids of all live nodes except the driver's."""
    if not ray.is_initialized():
        return set()
    here = ray.get_runtime_context().get_node_id()
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]} - {here}


def _ask(node_id: str) -> "ray.ObjectRef":
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(num_kills)
    return task.options(scheduling_strategy=there).remote()


def _answer(asked: "ray.ObjectRef") -> int | None:
    """Return a node's count; None without a response, which says nothing about kills."""
    try:
        return int(ray.get(asked, timeout=_TIMEOUT_S))
    except (RayError, GetTimeoutError):
        return None
