"""Synchronous data parallelism on one node."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tune_tf.parallelism.parallelism import Count, OptionalCount, Parallelism, Uneven
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Mirrored(Parallelism):
    """Model replicas on the devices of one node, each of which trains on a part of every batch.

    Args:
        num_replicas: Number of model replicas, one per device. The global batch size does not
            depend on it.
        synchronized_batch_norm: Whether BatchNormalization layers normalize over the rows of all
            replicas, as on one device, even if the model specifies otherwise.
        micro_batches: Pieces into which a replica splits its part of a batch to save memory. The
            gradient is that of the whole batch.
        uneven: Treatment of a batch whose rows do not divide by the replicas, such as the last one:
            ``"split"`` divides it as evenly as possible and weights the parts by rows, which gives
            the numbers of one device; ``"refuse"`` raises an error.
        max_replicas: Largest number of replicas of a trial that gets more devices from the
            scheduler ``resource_changing``; None allows as many as fit, ``num_replicas`` keeps the
            number fixed. Example: ``4``.
    """

    kind: ClassVar[str] = "mirrored"
    trainable: ClassVar[str] = "tune_tf.trainables.mirrored:MirroredTrainable"
    fills_node: ClassVar[bool] = True
    supports_fit: ClassVar[bool] = True

    num_replicas: Count = 1
    synchronized_batch_norm: bool = False
    micro_batches: Count = 1
    uneven: Uneven = "split"
    max_replicas: OptionalCount = None

    def conflicts(self) -> list[str]:
        """Return the errors of settings that do not fit together."""
        if self.max_replicas is None or self.max_replicas >= self.num_replicas:
            return []
        return [
            f"max_replicas must be at least num_replicas ({self.num_replicas}), not "
            f"{self.max_replicas}"
        ]

    @classmethod
    def on_devices(cls, num_devices: int) -> Self | None:
        """Return replicas in one process."""
        return cls(num_devices)

    @property
    def label(self) -> str:
        """Short readable description."""
        return "1 replica" if self.num_replicas == 1 else f"{self.num_replicas} replicas"

    def scaled_to(self, num_replicas: int) -> "Mirrored":
        """Return the layout with this number of model replicas."""
        return replace(self, num_replicas=num_replicas, max_replicas=None)

    def scaled_to_resources(
        self, base: TrialResources, reserved: TrialResources, *, batch_size: int
    ) -> "Mirrored":
        """Return the layout for the reserved resources, with unchanged numbers.

        A replica uses one GPU, or as many whole CPUs as in ``base``, the declared resources; the
        remaining CPUs serve as threads. The number of replicas is at least the declared one, at
        most the batch size and ``max_replicas``, and with ``uneven="refuse"`` a divisor of the
        batch size.

        A trial declared with one replica keeps the numbers of one device: batch normalization is
        synchronized over all replicas. A trial declared with several keeps its setting, so without
        synchronization its numbers depend on the number of replicas.
        """
        declared = self.num_replicas
        capacity = int(reserved.gpus) if reserved.gpus else declared * (reserved.cpus // base.cpus)
        num_replicas = min(capacity, batch_size, self.max_replicas or capacity)
        while self.uneven == "refuse" and num_replicas > 1 and batch_size % num_replicas:
            num_replicas -= 1
        if num_replicas <= declared:
            return self
        return replace(
            self,
            num_replicas=num_replicas,
            synchronized_batch_norm=self.synchronized_batch_norm or declared == 1,
        )

    def resource_errors(self, resources: TrialResources) -> list[str]:
        """Return the errors of a trial's resources: each replica has a device."""
        if not resources.gpus and resources.cpus < self.num_replicas:
            return [
                f"parallelism.num_replicas is {self.num_replicas} but resources.cpus is "
                f"{resources.cpus} and no GPUs are reserved: each replica needs its own CPU; "
                "reserve more, or use fewer replicas"
            ]
        if resources.gpus >= 1 and resources.gpus != self.num_replicas:
            return [
                f"resources.gpus is {resources.gpus:g} but parallelism.num_replicas is "
                f"{self.num_replicas}: a replica uses exactly one GPU; make the two equal"
            ]
        if 0 < resources.gpus < 1 and self.num_replicas > 1:
            return [
                f"resources.gpus is {resources.gpus:g}, a share of one card, but "
                f"parallelism.num_replicas is {self.num_replicas}: reserve whole GPUs, one per "
                "replica, or use one replica"
            ]
        return []
