"""Resources of trials, and the number that fits on an idle Ray cluster."""

from collections import Counter
from collections.abc import Mapping

import ray

from tune_tf.errors import UnavailableResourcesError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources, format_bundle

_RAY_UNITS = 10_000
_OF_NODES = ("node:", "memory", "object_store_memory")


def capacity_by_node(share: TrialResources) -> list[int]:
    """Return how many processes fit on each live node of the running cluster if it were idle."""
    return [
        min(_num_fitting(node["Resources"], kind, count) for kind, count in share.bundle.items())
        for node in ray.nodes()
        if node["Alive"]
    ]


def _num_fitting(node: Mapping[str, float], kind: str, count: float) -> int:
    """Return how many requests for a resource a node can serve.

    Ray counts in ten-thousandths, and takes a fraction of a GPU from a single card.
    """
    total, each = (round(number * _RAY_UNITS) for number in (node.get(kind, 0), count))
    if kind == "GPU" and count < 1:
        return total // _RAY_UNITS * (_RAY_UNITS // each)
    return total // each


def num_trials(capacity: list[int], parallelism: Parallelism) -> int:
    """Return how many trials fit concurrently.

    ``capacity`` is the number of processes of trials that fit on each node.
    """
    workers = parallelism.num_workers
    num = sum(capacity) // workers
    if parallelism.placement == "strict_spread":
        # A trial has at most one process per node, so a node counts at most once for each trial.
        while sum(min(each, num) for each in capacity) < num * workers:
            num -= 1
    return num


def default_resources(parallelism: Parallelism) -> TrialResources:
    """Return the default resources of a trial on the running cluster."""
    gpus = ray.cluster_resources().get("GPU", 0) if ray.is_initialized() else 0
    return parallelism.resources(gpus_in_cluster=gpus > 0)


def check_cluster(resources: TrialResources, parallelism: Parallelism = Mirrored()) -> None:  # noqa: B008  frozen
    """Check that the running cluster is large enough for a trial, if it were idle."""
    if not ray.is_initialized():
        return
    shares = parallelism.shares(resources)
    if num_trials(capacity_by_node(shares[0]), parallelism):
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    found = Counter(
        format_bundle({kind: node[kind] for kind in sorted(node) if not kind.startswith(_OF_NODES)})
        for node in nodes
    )
    raise UnavailableResourcesError(
        f"a trial asks for {_times(Counter(map(str, shares)))}, placement "
        f"{parallelism.placement!r}, but the nodes of the Ray cluster have {_times(found)}: it "
        "would wait forever; ask for less, or add machines; the GPUs of several nodes are for "
        "`parallelism: {kind: multi_worker}`"
    )


def _times(counts: Counter[str]) -> str:
    return "; ".join(f"{n} x {text}" if n > 1 else text for text, n in counts.items())
