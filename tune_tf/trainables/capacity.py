"""Number of trials that fit on an idle Ray cluster."""

import socket
from collections.abc import Sequence
from typing import Any

import ray

from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources

_ANSWERS_WITHIN_S = 2.0


def room_by_node(share: TrialResources, *, answering: bool = False) -> list[int]:
    """Return how many processes fit on each live node of the running cluster if it were idle.

    With ``answering``, unreachable nodes are skipped: Ray reports a lost node as alive for a while.
    If no node is reachable, as over Ray Client, all that Ray reports alive count.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if answering:
        nodes = [node for node in nodes if _answers(node)] or nodes
    return [
        int(min(node["Resources"].get(kind, 0) // count for kind, count in share.bundle.items()))
        for node in nodes
    ]


def _answers(node: dict[str, Any]) -> bool:
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    try:
        with socket.create_connection(address, timeout=_ANSWERS_WITHIN_S):
            return True
    except OSError:
        return False


def num_trials(
    room: list[int], parallelism: Parallelism, shares: Sequence[TrialResources] = ()
) -> int:
    """Return how many trials fit concurrently.

    Args:
        room: Processes with the first share that fit on each node.
        parallelism: Layout of a trial.
        shares: Resources of each process, if they differ.
    """
    fitting = _num_of_workers(room, parallelism)
    if len(set(shares)) < 2:
        return fitting
    cpus = int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))
    return min(fitting, cpus // sum(share.cpus for share in shares))


def _num_of_workers(room: list[int], parallelism: Parallelism) -> int:
    workers = parallelism.num_workers
    together = sum(room) // workers
    if parallelism.placement != "strict_spread":
        return together
    # A trial has at most one process per node, so a node counts at most once for each trial.
    fitting = (
        trials
        for trials in range(together, 0, -1)
        if sum(min(each, trials) for each in room) >= trials * workers
    )
    return next(fitting, 0)


def most_workers(room: list[int], parallelism: Parallelism) -> int:
    """Return the largest number of workers, up to the requested one, with which a trial fits."""
    spread = parallelism.placement == "strict_spread"
    fitting = sum(min(each, 1) for each in room) if spread else sum(room)
    return min(fitting, parallelism.num_workers)


def largest_node(share: TrialResources) -> dict[str, float]:
    """Return, for each resource of a share, the largest amount on a single live node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in share.bundle}
