"""What the workers of a trial tell of themselves before they train together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import UnavailableResourcesError


class PortTakenError(UnavailableResourcesError):
    """Another process took a worker's port before TensorFlow bound it: meet again on others."""


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as the others have to know it.

    Args:
        rank: Its number in the trial, from 0.
        node: The name of its node, for messages.
        address: ``host:port`` at which the others reach it.
        versions: Version by package; they have to be the same everywhere.
        num_gpus: GPUs that TensorFlow sees in it.
        devices: What it trains on, for reports.
    """

    rank: int
    node: str
    address: str
    versions: Mapping[str, str]
    num_gpus: int
    devices: str = ""


def addresses_of(workers: Sequence[WorkerInfo]) -> tuple[str, ...]:
    """Return the addresses by rank of workers that can train together.

    Raises:
        UnavailableResourcesError: They have different versions of a package, or not the same
            number of GPUs; tells which worker has what.
    """
    faults = [
        f"{package} is not the same everywhere ({told}): install one version on all nodes"
        for package in sorted({package for worker in workers for package in worker.versions})
        if (told := _differing(workers, _version_of(package)))
    ]
    told = _differing(workers, lambda worker: f"{worker.num_gpus} GPU(s)")
    if told:
        faults.append(
            f"TensorFlow does not see the same number of GPUs everywhere ({told}): check "
            "`nvidia-smi` and CUDA_VISIBLE_DEVICES on these nodes"
        )
    if faults:
        raise UnavailableResourcesError(
            "the workers of the trial cannot train together: " + "; ".join(faults)
        )
    return tuple(worker.address for worker in sorted(workers, key=lambda each: each.rank))


def _version_of(package: str) -> Callable[[WorkerInfo], Any]:
    return lambda worker: worker.versions.get(package, "missing")


def _differing(workers: Iterable[WorkerInfo], fact: Callable[[WorkerInfo], Any]) -> str:
    """Return who has what, where not all have the same; else an empty string."""
    by_fact: dict[str, list[str]] = {}
    for worker in workers:
        place = f"worker {worker.rank} on {worker.node}"
        by_fact.setdefault(str(fact(worker)), []).append(place)
    if len(by_fact) < 2:
        return ""
    return "; ".join(f"{what}: {', '.join(places)}" for what, places in by_fact.items())
