"""Synchronous data parallelism over several processes."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.parallelism import (
    Count,
    Minimum,
    OptionalCount,
    Parallelism,
    Placement,
    Uneven,
)
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class MultiWorker(Parallelism):
    """Model replicas in several worker processes, on one or more nodes.

    Each worker trains on its part of every global batch. Neither the global batch size nor the
    numbers depend on the number of workers.

    Args:
        num_workers: Number of processes, at least 2.
        replicas_per_worker: Model replicas in a process, one per GPU; 1 without GPUs.
        min_workers: Fewest workers, at least 1, with which a trial resumes after the loss of a node
            that the cluster cannot replace; None waits for ``num_workers``. Example: ``1``.
        placement: ``"pack"`` uses as few nodes as possible, ``"spread"`` as many as possible, and
            ``"strict_spread"`` one node per worker, without which the trial does not start.
        synchronized_batch_norm: Whether BatchNormalization layers normalize over the rows of all
            workers, as on one device, even if the model specifies otherwise.
        micro_batches: Pieces into which a replica splits its part of a batch to save memory.
        uneven: Treatment of a batch whose rows do not divide by the replicas; see
            :class:`Mirrored`.
    """

    kind: ClassVar[str] = "multi_worker"
    trainable: ClassVar[str] = "tune_tf.trainables.multi_worker:MultiWorkerTrainable"
    replica_setting: ClassVar[str] = "num_workers"

    num_workers: Annotated[int, Minimum(2, f"one process is kind {Mirrored.kind!r}")] = 2
    replicas_per_worker: Count = 1
    min_workers: OptionalCount = None
    placement: Placement = "pack"
    synchronized_batch_norm: bool = False
    micro_batches: Count = 1
    uneven: Uneven = "split"

    def conflicts(self) -> list[str]:
        """Return the errors of settings that do not fit together."""
        if self.min_workers is None or self.min_workers <= self.num_workers:
            return []
        return [
            f"min_workers must be at most num_workers ({self.num_workers}), not {self.min_workers}"
        ]

    @classmethod
    def on_devices(cls, num_devices: int) -> Self | None:
        """Return processes with one replica each."""
        return cls(num_devices)

    @property
    def in_processes(self) -> bool:
        """Whether models train in processes of their own, one per bundle."""
        return True

    @property
    def num_replicas(self) -> int:
        """Number of model replicas in all workers."""
        return self.num_workers * self.replicas_per_worker

    @property
    def label(self) -> str:
        """Short readable description."""
        return f"{self.num_workers} workers"

    def scaled_to(self, num_replicas: int) -> "MultiWorker | None":
        """Return the layout with this number of model replicas, if the workers divide it."""
        if num_replicas % self.replicas_per_worker:
            return None
        return replace(self, num_workers=num_replicas // self.replicas_per_worker, min_workers=None)

    def resource_errors(self, resources: TrialResources) -> list[str]:
        """Return the errors of a trial's resources, which are divided among its processes."""
        errors = []
        for name, count in {"cpus": resources.cpus, "gpus": resources.gpus}.items():
            if count % self.num_workers:
                errors.append(
                    f"resources.{name} is {count:g}, which is not divisible by "
                    f"parallelism.num_workers, {self.num_workers}: it is for the whole trial, and "
                    "all workers get the same; use a multiple"
                )
        if not errors and resources.gpus and resources.gpus != self.num_replicas:
            errors.append(
                f"resources.gpus is {resources.gpus:g} but the trial has {self.num_replicas} "
                f"replicas ({self.num_workers} workers with {self.replicas_per_worker} each): a "
                "replica uses exactly one GPU; make the two equal"
            )
        if not resources.gpus and self.replicas_per_worker > 1:
            errors.append(
                f"parallelism.replicas_per_worker is {self.replicas_per_worker} but no GPUs are "
                "reserved: a worker on CPUs has one replica; use more workers"
            )
        return errors
