"""How many trials a Ray cluster has room for, counted on its nodes as if they were empty."""

import socket
from collections.abc import Sequence
from typing import Any

import ray

from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources

_ANSWERS_WITHIN_S = 2.0


def room_by_node(share: TrialResources, *, answering: bool = False) -> list[int]:
    """Return how many processes with such a share fit on each live node of the running cluster.

    Args:
        share: What a process takes.
        answering: Whether to leave out nodes that cannot be reached: of one that was just lost Ray
            says for a while that it lives. If none can be, as over Ray Client, Ray is believed.
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
    """Return how many trials fit at a time.

    Args:
        room: Processes with the first share that fit on each node.
        parallelism: How a trial is spread.
        shares: What each process takes, if not all take the same.
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
    # A trial takes one process of a node at most: each node serves no more trials than there are.
    fitting = (
        trials
        for trials in range(together, 0, -1)
        if sum(min(each, trials) for each in room) >= trials * workers
    )
    return next(fitting, 0)


def most_workers(room: list[int], parallelism: Parallelism) -> int:
    """Return with how many workers, up to those asked for, one trial fits."""
    spread = parallelism.placement == "strict_spread"
    fitting = sum(min(each, 1) for each in room) if spread else sum(room)
    return min(fitting, parallelism.num_workers)


def largest_node(share: TrialResources) -> dict[str, float]:
    """Return the most of each kind of resource of a share that a single live node has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in share.bundle}
