"""Rendezvous of a trial's workers: exchange of addresses, package versions and GPU counts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import UnavailableResourcesError


class PortTakenError(UnavailableResourcesError):
    """Port taken by another process before TensorFlow bound it; retry with other ports."""


@dataclass(frozen=True)
class WorkerInfo:
    """Properties of a worker that the other workers need.

    Args:
        rank: Number of the worker in the trial, from 0.
        node: Name of the node, for messages.
        address: ``host:port``.
        versions: Version by package, which must be the same for all workers.
        num_gpus: GPUs visible to TensorFlow.
        devices: Names of the devices, for reports.
    """

    rank: int
    node: str
    address: str
    versions: Mapping[str, str]
    num_gpus: int
    devices: str = ""


def compatible_addresses(workers: Sequence[WorkerInfo]) -> tuple[str, ...]:
    """Return the workers' addresses by rank, after checks that they can train together.

    Raises:
        UnavailableResourcesError: Package versions or numbers of GPUs differ.
    """
    errors = [
        f"{package} is not the same everywhere ({detail}): install one version on all nodes"
        for package in sorted({package for worker in workers for package in worker.versions})
        if (detail := _differing(workers, _version_of(package)))
    ]
    if detail := _differing(workers, lambda worker: f"{worker.num_gpus} GPU(s)"):
        errors.append(
            f"TensorFlow does not see the same number of GPUs everywhere ({detail}): check "
            "`nvidia-smi` and CUDA_VISIBLE_DEVICES on these nodes"
        )
    if errors:
        raise UnavailableResourcesError(
            "the workers of the trial cannot train together: " + "; ".join(errors)
        )
    return tuple(worker.address for worker in sorted(workers, key=lambda each: each.rank))


def _version_of(package: str) -> Callable[[WorkerInfo], Any]:
    return lambda worker: worker.versions.get(package, "missing")


def _differing(workers: Iterable[WorkerInfo], get: Callable[[WorkerInfo], Any]) -> str:
    """Return the workers by value as text if the values differ; else an empty string."""
    by_value: dict[str, list[str]] = {}
    for worker in workers:
        place = f"worker {worker.rank} on {worker.node}"
        by_value.setdefault(str(get(worker)), []).append(place)
    if len(by_value) < 2:
        return ""
    return "; ".join(f"{value}: {', '.join(places)}" for value, places in by_value.items())
