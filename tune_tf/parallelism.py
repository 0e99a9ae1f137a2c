"""How one trial is spread over devices."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tune_tf.errors import InvalidSettingsError, one_of
from tune_tf.resources import TrialResources

Uneven = Literal["split", "refuse"]


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

    Raises:
        InvalidSettingsError: A value is not allowed.
    """

    kind: ClassVar[str] = "mirrored"

    num_replicas: int = 1
    synchronized_batch_norm: bool = False
    micro_batches: int = 1
    uneven: Uneven = "split"

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = [
            f"{name} must be a whole number of at least 1, not {count!r}"
            for name, count in (
                ("num_replicas", self.num_replicas),
                ("micro_batches", self.micro_batches),
            )
            if isinstance(count, bool) or not isinstance(count, int) or count < 1
        ]
        if not isinstance(self.synchronized_batch_norm, bool):
            faults.append(
                f"synchronized_batch_norm must be true or false, not "
                f"{self.synchronized_batch_norm!r}"
            )
        if self.uneven not in get_args(Uneven):
            faults.append(f"uneven must be {one_of(get_args(Uneven))}, not {self.uneven!r}")
        if faults:
            raise InvalidSettingsError(faults)

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a replica."""
        if gpus_in_cluster:
            return TrialResources(cpus=self.num_replicas, gpus=self.num_replicas)
        return TrialResources(cpus=self.num_replicas)

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


Parallelism = Mirrored
"""Any of the values that say how a trial is spread."""
