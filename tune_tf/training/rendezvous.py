"""What the workers of a trial tell of themselves before they train together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tune_tf.errors import UnavailableResourcesError


class PortTakenError(UnavailableResourcesError):
    """Port taken by another process before TensorFlow bound it; retry with other ports."""


@dataclass(frozen=True)
class WorkerInfo:
    """Properties of a worker that must be alike on all nodes, and its devices for results."""

    name: str  # for messages
    versions: Mapping[str, str]  # by package
    num_gpus: int  # that TensorFlow sees
    devices: str = ""


def check_compatible(workers: Sequence[WorkerInfo]) -> None:
    """Check that workers can train together.

    Raises:
        UnavailableResourcesError: Package versions or numbers of GPUs differ.
    """
    packages = sorted({package for worker in workers for package in worker.versions})
    errors = [
        f"{package} is not the same everywhere ({detail}): install one version on all nodes"
        for package in packages
        if (
            detail := _differences(
                workers, [each.versions.get(package, "none") for each in workers]
            )
        )
    ]
    if detail := _differences(workers, [f"{worker.num_gpus} GPU(s)" for worker in workers]):
        errors.append(
            f"TensorFlow does not see the same number of GPUs everywhere ({detail}): check "
            "`nvidia-smi` and CUDA_VISIBLE_DEVICES on these nodes"
        )
    if errors:
        raise UnavailableResourcesError(
            "the workers of the trial cannot train together: " + "; ".join(errors)
        )


def _differences(workers: Sequence[WorkerInfo], values: Sequence[str]) -> str:
    """Return the workers by value as text if the values differ; else an empty string."""
    names_by_value: dict[str, list[str]] = {}
    for worker, value in zip(workers, values, strict=True):
        names_by_value.setdefault(value, []).append(worker.name)
    if len(names_by_value) < 2:
        return ""
    return "; ".join(f"{value}: {', '.join(names)}" for value, names in names_by_value.items())
