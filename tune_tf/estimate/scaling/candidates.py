"""Scaling candidates (parallelism, batch sizes, amounts of data) and their measurements."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from tune_tf.estimate.sample_process import robust_spread
from tune_tf.parallelism import (
    Asynchronous,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
    Parallelism,
)
from tune_tf.resources import TrialResources

Dimension = Literal["devices", "batch", "data"]


@dataclass(frozen=True)
class ScalingCandidate:
    """Combination of parallelism, batch size and amount of data to measure.

    It varies one ``dimension``, ``"devices"`` for the reference. ``batch_scale`` is the ratio of
    the global batch size to the workload's own, ``data_fraction`` the share of the rows.
    """

    dimension: Dimension
    parallelism: Parallelism
    resources: TrialResources
    batch_scale: float = 1.0
    data_fraction: float = 1.0

    @property
    def num_devices(self) -> int:
        """Number of GPUs, or of CPU cores without GPUs."""
        return int(self.resources.gpus) or self.resources.cpus

    @property
    def family(self) -> str:
        """Group of candidates that differ only in their number of devices."""
        if self.is_multicore_replica:
            return "one replica, more cores"
        return self.parallelism.kind.replace("_", " ")

    @property
    def label(self) -> str:
        """Short readable name."""
        if self.batch_scale != 1:
            return f"batch x {self.batch_scale:g}"
        if self.data_fraction != 1:
            return f"{self.data_fraction:.0%} of the data"
        if self.is_multicore_replica:
            return f"1 replica on {self.resources.cpus} cores"
        return self.parallelism.label

    @property
    def is_multicore_replica(self) -> bool:
        """Whether it is one replica on several cores."""
        return self.parallelism.num_devices == 1 and self.num_devices > 1


@dataclass(frozen=True)
class Measurement:
    """Training speed and resource usage of a candidate, the latter on this machine.

    Args:
        batch_size: Rows of a global batch.
        num_rows: Rows per epoch.
        rates: Training rows per second, by round.
        reference_rates: Training rows per second of one device in the same rounds.
        start_s: Seconds from a fresh process to the end of the first epoch, including tracing.
        memory_bytes: Peak memory of its processes; None if unknown.
        busy_cores: CPU seconds per second of its processes.
        other_cores: CPU seconds per second of all other processes in that time.
        input_share: Share of an epoch that the loop takes without a model; None if not measured.
        staleness: Mean and largest number of updates by which the weights of a gradient were old;
            None for synchronous training.
        error: Reason why it could not be measured, or empty.
    """

    candidate: ScalingCandidate
    batch_size: int = 0
    num_rows: int = 0
    rates: tuple[float, ...] = ()
    reference_rates: tuple[float, ...] = ()
    start_s: float = 0.0
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    busy_cores: float | None = None
    other_cores: float = 0.0
    input_share: float | None = None
    staleness: tuple[float, int] | None = None
    error: str = ""

    @property
    def rows_per_s(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rates)

    @property
    def noise(self) -> float:
        """Relative spread of the rounds around their median."""
        return robust_spread(self.rates) / self.rows_per_s

    @property
    def speed_up(self) -> float:
        """Median rate divided by that of one device in the same rounds."""
        return self.rows_per_s / statistics.median(self.reference_rates)

    @property
    def speed_up_spread(self) -> float:
        """Spread of the speed-ups of single rounds."""
        pairs = zip(self.rates, self.reference_rates, strict=True)
        return robust_spread([rate / reference for rate, reference in pairs])

    @property
    def efficiency(self) -> float:
        """Speed-up divided by the number of devices."""
        return self.speed_up / self.candidate.num_devices

    def position(self, dimension: Dimension) -> int:
        """Return the number of devices, rows of a batch or rows of data."""
        if dimension == "devices":
            return self.candidate.num_devices
        return self.batch_size if dimension == "batch" else self.num_rows

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        candidate = self.candidate
        values: dict[str, Any] = {
            "what": candidate.label,
            "dimension": candidate.dimension,
            "kind": candidate.parallelism.kind,
            "num_devices": candidate.num_devices,
            "batch_scale": candidate.batch_scale,
            "data_fraction": candidate.data_fraction,
        }
        if self.error:
            return values | {"error": self.error}
        return values | {
            "batch_size": self.batch_size,
            "num_rows": self.num_rows,
            "rows_per_s": self.rows_per_s,
            "rates": list(self.rates),
            "speed_up": self.speed_up,
            "efficiency": self.efficiency if candidate.dimension == "devices" else None,
            "start_s": self.start_s,
            "memory_bytes": self.memory_bytes,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "busy_cores": self.busy_cores,
            "other_cores": self.other_cores,
            "input_share": self.input_share,
            "staleness": self.staleness,
        }


ScalingCurves = dict[Dimension, dict[str, list[Measurement]]]


def scaling_curves(measurements: Sequence[Measurement]) -> ScalingCurves:
    """Return the successful measurements by dimension and family, each curve with the reference.

    Batch sizes and amounts of data have the family "", and a curve in any case.
    """
    reference, *others = measurements
    curves: ScalingCurves = {"batch": {"": [reference]}, "data": {"": [reference]}, "devices": {}}
    for each in others:
        if not each.error:
            dimension = each.candidate.dimension
            family = each.candidate.family if dimension == "devices" else ""
            curves[dimension].setdefault(family, [reference]).append(each)
    return curves


def candidates(
    like: Parallelism,
    *,
    cpus_per_device: int,
    max_devices: int,
    on_gpus: bool,
    loop: str = "graph",
    quick: bool = False,
    declared: TrialResources = TrialResources(),  # noqa: B008  frozen
) -> tuple[ScalingCandidate, ...]:
    """Return the candidates to compare; the first is the reference: one replica on one device.

    Their settings for batches and BatchNormalization are those of the parallelism ``like``. Kinds
    that the loop cannot train are left out. ``quick`` skips candidates between the extremes. The
    type of accelerator and the custom resources are ``declared`` ones.
    """

    def resources(num_devices: int) -> TrialResources:
        gpus = num_devices if on_gpus else 0
        return declared.with_counts(num_devices * cpus_per_device, gpus)

    reference = ScalingCandidate("devices", _with_settings(Mirrored(), like), resources(1))
    compared = [reference]
    numbers = _device_numbers(max_devices)
    for num in numbers[-1:] if quick else numbers:
        if not on_gpus:
            compared.append(replace(reference, resources=resources(num)))
        compared += [
            ScalingCandidate("devices", _with_settings(each, like), resources(num))
            for each in _layouts(num)
            if loop != "fit" or isinstance(each, Mirrored)
        ]
    scales = (4.0,) if quick else (0.5, 2.0, 4.0)
    compared += [replace(reference, dimension="batch", batch_scale=scale) for scale in scales]
    fractions = (0.25,) if quick else (0.25, 0.5)
    compared += [replace(reference, dimension="data", data_fraction=each) for each in fractions]
    return tuple(compared)


def _device_numbers(most: int) -> list[int]:
    """Return 2, 4, 8, ... up to a maximum, and the maximum."""
    numbers = {2**power for power in range(1, most.bit_length())} | {most}
    return sorted(numbers - {0, 1})


def _layouts(num_devices: int) -> list[Parallelism]:
    """Return one model on all of at least 2 devices, in each way."""
    hybrids = [Hybrid(num_devices // 2, 2)] if num_devices > 2 and num_devices % 2 == 0 else []
    return [
        Mirrored(num_devices),
        MultiWorker(num_devices),
        ModelParallel(num_devices),
        *hybrids,
        Asynchronous(num_devices, server_cpus=0),
    ]


def _with_settings(parallelism: Parallelism, like: Parallelism) -> Parallelism:
    """Return a parallelism with the settings of another that do not depend on the devices."""
    names = {field.name for field in fields(parallelism)} & {field.name for field in fields(like)}
    shared = names & {"synchronized_batch_norm", "micro_batches", "uneven"}
    return replace(parallelism, **{name: getattr(like, name) for name in shared})
