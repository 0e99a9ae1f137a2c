"""Whether the kernel has ended a process of a node for want of memory.

Ray only sees that a process is gone. Linux counts how often it had to end one.
"""

from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_COUNTER = "oom_kill "
_VMSTAT = Path("/proc/vmstat")
_TIMEOUT_S = 10.0


def num_kills() -> int:
    """Return how many processes this machine's kernel has ended; 0 where it does not tell."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next(
        (int(line.removeprefix(_COUNTER)) for line in lines if line.startswith(_COUNTER)), 0
    )


class KernelKills:
    """Compares the counts of the cluster's nodes with what they were.

    The machine of the driver is asked directly, other nodes by a task each that nobody waits for
    until a process has died.
    """

    def __init__(self) -> None:
        self._here = num_kills()
        self._before: dict[str, int] = {}
        self._asked: dict[str, ray.ObjectRef] = {}

    def look(self) -> None:
        """Note the counts of the nodes that are new; does not wait."""
        for node_id in _others() - {*self._before, *self._asked}:
            self._asked[node_id] = _ask(node_id)

    def have_risen(self) -> bool:
        """Return whether a count is higher than at the last look, as far as nodes answer."""
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
    """Return the nodes that are alive, without the driver's."""
    if not ray.is_initialized():
        return set()
    here = ray.get_runtime_context().get_node_id()
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]} - {here}


def _ask(node_id: str) -> "ray.ObjectRef":
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(num_kills)
    return task.options(scheduling_strategy=there).remote()


def _answer(asked: "ray.ObjectRef") -> int | None:
    """Return a node's count; None if it does not answer, which says nothing of kills."""
    try:
        return int(ray.get(asked, timeout=_TIMEOUT_S))
    except (RayError, GetTimeoutError):
        return None
