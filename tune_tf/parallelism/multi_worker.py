"""Synchronous data parallelism over several processes."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from tune_tf.parallelism.parallelism import (
    Count,
    Parallelism,
    Placement,
)
from tune_tf.validation import validated


@validated
class MultiWorker(Parallelism):
    """Model replicas in several worker processes, on one or more nodes.

    Each worker trains on its part of every global batch. Neither the global batch size nor the
    numbers depend on the number of workers.

    Args:
        num_workers: Number of processes, at least 2, with a replica and a device each.
        placement: ``"pack"`` uses as few nodes as possible, ``"spread"`` as many as possible, and
            ``"strict_spread"`` one node per worker, without which the trial does not start.
        synchronized_batch_norm: Whether BatchNormalization layers normalize over the rows of all
            workers, as on one device, even if the model specifies otherwise.
        micro_batches: Pieces into which a replica splits its part of a batch to save memory.
    """

    kind: ClassVar[str] = "multi_worker"
    trainable: ClassVar[str] = "tune_tf.trainables.multi_worker:MultiWorkerTrainable"
    part: ClassVar[str] = "worker"

    num_workers: Annotated[int, Field(ge=2)] = 2
    placement: Placement = "pack"
    synchronized_batch_norm: bool = False
    micro_batches: Count = 1

    @property
    def num_replicas(self) -> int:
        """Number of model replicas in all workers."""
        return self.num_workers

    def scaled_to(self, num_replicas: int) -> "MultiWorker":
        """Return the layout with this number of model replicas."""
        return replace(self, num_workers=num_replicas)
