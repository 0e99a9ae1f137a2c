"""Scaling candidates: parallelism, batch sizes and amounts of data."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import PARALLELISM_KINDS, Mirrored, Parallelism
from tune_tf.resources import TrialResources

Dimension = Literal["devices", "batch", "data"]

BATCH_SCALES = (0.5, 2.0, 4.0)
DATA_FRACTIONS = (0.25, 0.5)
_QUICK_BATCH_SCALES = (4.0,)
_QUICK_DATA_FRACTIONS = (0.25,)


@dataclass(frozen=True)
class ScalingCandidate:
    """Combination of parallelism, batch size and amount of data to measure.

    Args:
        dimension: Dimension that it varies; ``"devices"`` for the reference, one device.
        batch_scale: Ratio of the global batch size to the workload's own.
        data_fraction: Share of the rows.
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
        kind = self.parallelism.kind.replace("_", " ")
        return "one replica, more cores" if self._is_one_replica_on_several else kind

    @property
    def label(self) -> str:
        """Short readable name."""
        if self.batch_scale != 1:
            return f"batch x {self.batch_scale:g}"
        if self.data_fraction != 1:
            return f"{self.data_fraction:.0%} of the data"
        if self._is_one_replica_on_several:
            return f"1 replica on {self.resources.cpus} cores"
        return self.parallelism.label

    @property
    def _is_one_replica_on_several(self) -> bool:
        alone = self.parallelism.num_devices == 1
        return alone and self.dimension == "devices" and self.num_devices > 1


def candidates(
    like: Parallelism,
    *,
    cpus_per_device: int,
    max_devices: int,
    on_gpus: bool,
    loop: str = "graph",
    quick: bool = False,
    kinds: Sequence[type[Parallelism]] = PARALLELISM_KINDS,
) -> tuple[ScalingCandidate, ...]:
    """Return the candidates to compare; the first is the reference: one replica on one device.

    Their settings for batches and BatchNormalization are those of the parallelism ``like``. The
    loop ``"fit"`` trains on one device only. ``quick`` skips candidates between the extremes.
    """

    def resources(num_devices: int) -> TrialResources:
        return TrialResources(
            cpus=num_devices * cpus_per_device, gpus=num_devices if on_gpus else 0
        )

    one = _like(like, Mirrored())
    found = [ScalingCandidate("devices", one, resources(1))]
    numbers = _up_to(max_devices)
    for num in numbers[-1:] if quick else numbers:
        if not on_gpus:
            found.append(ScalingCandidate("devices", one, resources(num)))
        made = [kind.on_devices(num) for kind in kinds] if loop == "graph" else []
        found += [
            ScalingCandidate("devices", _like(like, each), resources(num))
            for each in made
            if each is not None and _fits(each, resources(num))
        ]
    scales = _QUICK_BATCH_SCALES if quick else BATCH_SCALES
    found += [replace(found[0], dimension="batch", batch_scale=scale) for scale in scales]
    fractions = _QUICK_DATA_FRACTIONS if quick else DATA_FRACTIONS
    found += [replace(found[0], dimension="data", data_fraction=each) for each in fractions]
    return tuple(found)


def _up_to(most: int) -> list[int]:
    """Return 2, 4, 8, ... up to a maximum, and the maximum."""
    doubled = [2**power for power in range(1, most.bit_length()) if 2**power <= most]
    return doubled if most < 2 or most in doubled else [*doubled, most]


def _like(given: Parallelism, made: Parallelism) -> Parallelism:
    """Return a parallelism with the settings of another that do not depend on the devices."""
    shared = ("synchronized_batch_norm", "micro_batches", "uneven")
    known = {field.name for field in fields(made)}
    return replace(
        made,
        **{name: getattr(given, name) for name in shared if name in known and hasattr(given, name)},
    )


def _fits(parallelism: Parallelism, resources: TrialResources) -> bool:
    try:
        parallelism.check(resources)
    except InvalidSettingsError:
        return False
    return True
