"""Synchronous data parallelism on one node."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import (
    Placement,
    Uneven,
    count_errors,
    is_count,
    step_errors,
)
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Mirrored:
    """Model replicas on the devices of one node, each of which trains on a part of every batch.

    Args:
        num_replicas: Number of model replicas, one per device. The global batch size does not
            depend on it.
        synchronized_batch_norm: Whether BatchNormalization layers normalise over the rows of all
            replicas, as on one device, even if the model specifies otherwise.
        micro_batches: Pieces into which a replica splits its part of a batch to save memory. The
            gradient is that of the whole batch.
        uneven: Treatment of a batch whose rows do not divide by the replicas, such as the last one:
            ``"split"`` divides it as evenly as possible and weights the parts by rows, which gives
            the numbers of one device; ``"refuse"`` raises an error.
        max_replicas: Largest number of replicas of a trial that gets more devices from the
            scheduler ``resource_changing``; None allows as many as fit, ``num_replicas`` keeps the
            number fixed.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "mirrored"
    num_workers: ClassVar[int] = 1
    placement: ClassVar[Placement] = "pack"

    num_replicas: int = 1
    synchronized_batch_norm: bool = False
    micro_batches: int = 1
    uneven: Uneven = "split"
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = [*count_errors(self, "num_replicas"), *step_errors(self)]
        if self.max_replicas is not None and not is_count(self.max_replicas):
            errors.append(
                f"max_replicas must be an integer of at least 1, not {self.max_replicas!r}"
            )
        elif not errors and self.max_replicas is not None and self.max_replicas < self.num_replicas:
            errors.append(
                f"max_replicas must be at least num_replicas ({self.num_replicas}), not "
                f"{self.max_replicas}"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_replicas

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: one device per replica."""
        if gpus_in_cluster:
            return TrialResources(cpus=self.num_replicas, gpus=self.num_replicas)
        return TrialResources(cpus=self.num_replicas)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process of a trial."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Check that the resources fit the replicas.

        Raises:
            InvalidSettingsError: There are too few CPUs, or GPUs and replicas differ in number.
        """
        if not resources.gpus and resources.cpus < self.num_replicas:
            raise InvalidSettingsError(
                [
                    f"parallelism.num_replicas is {self.num_replicas} but resources.cpus is "
                    f"{resources.cpus} and no GPUs are reserved: each replica needs its own CPU; "
                    "reserve more, or use fewer replicas"
                ]
            )
        if resources.gpus >= 1 and resources.gpus != self.num_replicas:
            raise InvalidSettingsError(
                [
                    f"resources.gpus is {resources.gpus:g} but parallelism.num_replicas is "
                    f"{self.num_replicas}: a replica uses exactly one GPU; make the two equal"
                ]
            )
        if 0 < resources.gpus < 1 and self.num_replicas > 1:
            raise InvalidSettingsError(
                [
                    f"resources.gpus is {resources.gpus:g}, a share of one card, but "
                    f"parallelism.num_replicas is {self.num_replicas}: reserve whole GPUs, one per "
                    "replica, or use one replica"
                ]
            )
