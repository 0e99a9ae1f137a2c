"""Scaling candidates: parallelism, batch sizes and amounts of data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from tune_tf.errors import InvalidSettingsError
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

BATCH_SCALES = (0.5, 2.0, 4.0)
DATA_FRACTIONS = (0.25, 0.5)
_QUICK_BATCH_SCALES = (4.0,)
_QUICK_DATA_FRACTIONS = (0.25,)


@dataclass(frozen=True)
class ScalingCandidate:
    """One way to train a workload.

    Args:
        dimension: What it varies; the reference, one device, stands among those of devices.
        parallelism: How a trial is spread.
        resources: What a trial reserves.
        batch_scale: The global batch size over the workload's own.
        data_fraction: Share of the rows.
    """

    dimension: Dimension
    parallelism: Parallelism
    resources: TrialResources
    batch_scale: float = 1.0
    data_fraction: float = 1.0

    @property
    def num_devices(self) -> int:
        """GPUs, or CPU cores where there are none."""
        return int(self.resources.gpus) or self.resources.cpus

    @property
    def family(self) -> str:
        """What candidates on more and more devices have in common."""
        kind = self.parallelism.kind.replace("_", " ")
        return "one replica, more cores" if self._is_one_replica_on_several else kind

    @property
    def label(self) -> str:
        """What a reader calls it."""
        if self.batch_scale != 1:
            return f"batch x {self.batch_scale:g}"
        if self.data_fraction != 1:
            return f"{self.data_fraction:.0%} of the data"
        if self._is_one_replica_on_several:
            return f"1 replica on {self.resources.cpus} cores"
        return _label_of(self.parallelism)

    @property
    def _is_one_replica_on_several(self) -> bool:
        alone = isinstance(self.parallelism, Mirrored) and self.parallelism.num_replicas == 1
        return alone and self.dimension == "devices" and self.num_devices > 1


def mirrored(num_devices: int) -> Parallelism | None:
    """Return replicas in one process."""
    return Mirrored(num_devices)


def multi_worker(num_devices: int) -> Parallelism | None:
    """Return processes with a replica each."""
    return MultiWorker(num_devices)


def model_parallel(num_devices: int) -> Parallelism | None:
    """Return a model cut into stages."""
    return ModelParallel(num_devices)


def hybrid(num_devices: int) -> Parallelism | None:
    """Return copies that are cut in two."""
    return Hybrid(num_devices // 2, 2) if num_devices > 2 and num_devices % 2 == 0 else None


def asynchronous(num_devices: int) -> Parallelism | None:
    """Return workers that do not wait for each other; the server shares the first one's cores."""
    return Asynchronous(num_devices, server_cpus=0)


KINDS: tuple[Callable[[int], Parallelism | None], ...] = (
    mirrored,
    multi_worker,
    model_parallel,
    hybrid,
    asynchronous,
)
"""From a number of devices, at least 2, to a parallelism that uses them all; None for none."""


def _label_of(parallelism: Parallelism) -> str:
    match parallelism:
        case Mirrored(num_replicas=1):
            return "1 replica"
        case Mirrored(num_replicas=num):
            return f"{num} replicas"
        case MultiWorker(num_workers=num):
            return f"{num} workers"
        case ModelParallel(num_stages=num):
            return f"{num} stages"
        case Hybrid(num_replicas=num, num_stages=stages):
            return f"{num} replicas of {stages} stages"
        case Asynchronous(num_workers=num):
            return f"{num} asynchronous workers"
        case _:
            return parallelism.kind.replace("_", " ")


def candidates(
    like: Parallelism,
    *,
    cpus_per_device: int,
    max_devices: int,
    on_gpus: bool,
    loop: str = "graph",
    quick: bool = False,
    kinds: Sequence[Callable[[int], Parallelism | None]] = KINDS,
) -> tuple[ScalingCandidate, ...]:
    """Return what to compare, the reference first: one replica on one device.

    Args:
        like: The sweep's own parallelism; its settings for batches and BatchNormalization are kept.
        cpus_per_device: CPU cores of each device.
        max_devices: How many devices there are.
        on_gpus: Whether devices are GPUs.
        loop: The sweep's; ``"fit"`` trains on one device only.
        quick: Whether to leave out what lies between the ends.
        kinds: From a number of devices to parallelisms.
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
        made = [kind(num) for kind in kinds] if loop == "graph" else []
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
    """Return 2, 4, 8, ... and the most there are."""
    doubled = [2**power for power in range(1, most.bit_length()) if 2**power <= most]
    return doubled if most < 2 or most in doubled else [*doubled, most]


def _like(given: Parallelism, made: Parallelism) -> Parallelism:
    """Return a parallelism with the settings of another that do not say how many devices."""
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
