"""Rendezvous of a trial's workers: exchange of addresses, package versions and GPU counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tune_tf.errors import UnavailableResourcesError


class PortTakenError(UnavailableResourcesError):
    """Port taken by another process before TensorFlow bound it; retry with other ports."""


@dataclass(frozen=True)
class WorkerInfo:
    """Properties of a worker that the other workers need."""

    rank: int  # from 0
    node: str  # its name, for messages
    address: str  # host:port
    versions: Mapping[str, str]  # by package
    num_gpus: int  # that TensorFlow sees
    devices: str = ""  # their names, for reports


def compatible_addresses(workers: Sequence[WorkerInfo]) -> tuple[str, ...]:
    """Return the workers' addresses by rank, after checks that they can train together.

    Raises:
        UnavailableResourcesError: Package versions or numbers of GPUs differ.
    """
    errors = []
    for package in sorted({package for worker in workers for package in worker.versions}):
        versions = [worker.versions.get(package, "missing") for worker in workers]
        if detail := _differences(workers, versions):
            errors.append(
                f"{package} is not the same everywhere ({detail}): install one version on all nodes"
            )
    if detail := _differences(workers, [f"{worker.num_gpus} GPU(s)" for worker in workers]):
        errors.append(
            f"TensorFlow does not see the same number of GPUs everywhere ({detail}): check "
            "`nvidia-smi` and CUDA_VISIBLE_DEVICES on these nodes"
        )
    if errors:
        raise UnavailableResourcesError(
            "the workers of the trial cannot train together: " + "; ".join(errors)
        )
    return tuple(worker.address for worker in sorted(workers, key=lambda each: each.rank))


def _differences(workers: Sequence[WorkerInfo], values: Sequence[str]) -> str:
    """Return the workers by value as text if the values differ; else an empty string."""
    names_by_value: dict[str, list[str]] = {}
    for worker, value in zip(workers, values, strict=True):
        names_by_value.setdefault(value, []).append(f"worker {worker.rank} on {worker.node}")
    if len(names_by_value) < 2:
        return ""
    return "; ".join(f"{value}: {', '.join(names)}" for value, names in names_by_value.items())
