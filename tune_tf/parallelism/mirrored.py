"""Synchronous data parallelism on one node."""

from dataclasses import replace
from typing import ClassVar

from tune_tf.parallelism.parallelism import Count, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.validation import validated


@validated
class Mirrored(Parallelism):
    """Model replicas on the devices of one node, each of which trains on a part of every batch.

    Args:
        num_replicas: Number of model replicas, one per device. The global batch size does not
            depend on it.
        synchronized_batch_norm: Whether BatchNormalization layers normalize over the rows of all
            replicas, as on one device, even if the model specifies otherwise.
        micro_batches: Pieces into which a replica splits its part of a batch to save memory. The
            gradient is that of the whole batch.
    """

    kind: ClassVar[str] = "mirrored"
    trainable: ClassVar[str] = "tune_tf.trainables.mirrored:MirroredTrainable"

    num_replicas: Count = 1
    synchronized_batch_norm: bool = False
    micro_batches: Count = 1

    def scaled_to(self, num_replicas: int) -> "Mirrored":
        """Return the layout with this number of model replicas."""
        return replace(self, num_replicas=num_replicas)

    def scaled_to_resources(
        self, base: TrialResources, reserved: TrialResources, *, batch_size: int
    ) -> "Mirrored":
        """Return the layout for the reserved resources, with unchanged numbers.

        A replica uses one GPU, or as many whole CPUs as in ``base``, the declared resources; the
        remaining CPUs serve as threads. The number of replicas is at least the declared one, and at
        most the batch size.

        A trial declared with one replica keeps the numbers of one device: batch normalization is
        synchronized over all replicas. A trial declared with several keeps its setting, so without
        synchronization its numbers depend on the number of replicas.
        """
        declared = self.num_replicas
        capacity = int(reserved.gpus) if reserved.gpus else declared * (reserved.cpus // base.cpus)
        num_replicas = min(capacity, batch_size)
        if num_replicas <= declared:
            return self
        return replace(
            self,
            num_replicas=num_replicas,
            synchronized_batch_norm=self.synchronized_batch_norm or declared == 1,
        )
