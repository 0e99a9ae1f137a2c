"""Copies of the model on the devices of one node."""

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
    """Copies of the model on the devices of one node, each training on its part of a batch.

    Args:
        num_replicas: Copies of the model, each on a device of its own. The global batch size does
            not depend on it.
        synchronized_batch_norm: Whether BatchNormalization layers normalise by the rows of all
            replicas, as one device does, also where the model says otherwise.
        micro_batches: Pieces in which a replica takes its part of a batch, one after another, to
            need less memory. The gradient is that of the whole batch.
        uneven: What becomes of a batch whose rows do not divide by the replicas, the last one
            included: ``"split"`` as evenly as possible and weighted by rows, which gives the
            numbers of one device; or ``"refuse"`` it.
        max_replicas: How many there may be at most in a trial that the scheduler
            ``resource_changing`` gives more devices; None: as many as those have room for. With
            ``num_replicas`` itself they stay as many.

    Raises:
        InvalidSettingsError: A value is not allowed.
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
        """Refuse bad values when made."""
        errors = [*count_errors(self, "num_replicas"), *step_errors(self)]
        if self.max_replicas is not None and not is_count(self.max_replicas):
            errors.append(
                f"max_replicas must be a whole number of at least 1, not {self.max_replicas!r}"
            )
        elif not errors and self.max_replicas is not None and self.max_replicas < self.num_replicas:
            errors.append(
                f"max_replicas must be at least num_replicas, {self.num_replicas}, not "
                f"{self.max_replicas}"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        return self.num_replicas

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a replica."""
        if gpus_in_cluster:
            return TrialResources(cpus=self.num_replicas, gpus=self.num_replicas)
        return TrialResources(cpus=self.num_replicas)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process of a trial gets of its resources."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that this parallelism cannot use.

        Raises:
            InvalidSettingsError: There are more replicas than reserved devices, or fewer than GPUs.
        """
        if not resources.gpus and resources.cpus < self.num_replicas:
            raise InvalidSettingsError(
                [
                    f"parallelism.num_replicas is {self.num_replicas} but resources.cpus is "
                    f"{resources.cpus} and no GPUs are reserved: a replica needs a CPU of its own; "
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
                    f"parallelism.num_replicas is {self.num_replicas}: reserve whole GPUs, one a "
                    "replica, or use one replica"
                ]
            )
