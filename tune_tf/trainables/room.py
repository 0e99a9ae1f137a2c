"""How many trials a Ray cluster has room for, counted on its nodes as if they were empty."""

import ray

from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources


def room_by_node(share: TrialResources) -> list[int]:
    """Return how many processes with such a share fit on each live node of the running cluster."""
    return [
        int(min(node["Resources"].get(kind, 0) // count for kind, count in share.bundle.items()))
        for node in ray.nodes()
        if node["Alive"]
    ]


def num_trials(room: list[int], parallelism: Parallelism) -> int:
    """Return how many trials fit at a time.

    Args:
        room: Processes that fit on each node.
        parallelism: How a trial is spread.
    """
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
