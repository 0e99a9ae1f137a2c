"""Synchronous data parallelism over several processes."""

from dataclasses import dataclass
from typing import ClassVar, get_args

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.setting_errors import (
    Placement,
    Uneven,
    count_errors,
    is_count,
    step_errors,
)
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class MultiWorker:
    """Model replicas in several worker processes, on one or more nodes.

    Each worker trains on its part of every global batch. Neither the global batch size nor the
    numbers depend on the number of workers.

    Args:
        num_workers: Number of processes, at least 2.
        replicas_per_worker: Model replicas in a process, one per GPU; 1 without GPUs.
        min_workers: Fewest workers, at least 1, with which a trial resumes after the loss of a node
            that the cluster cannot replace; None waits for ``num_workers``.
        placement: ``"pack"`` uses as few nodes as possible, ``"spread"`` as many as possible, and
            ``"strict_spread"`` one node per worker, without which the trial does not start.
        synchronized_batch_norm: As in :class:`Mirrored`, over the rows of all workers.
        micro_batches: As in :class:`Mirrored`.
        uneven: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "multi_worker"

    num_workers: int = 2
    replicas_per_worker: int = 1
    min_workers: int | None = None
    placement: Placement = "pack"
    synchronized_batch_norm: bool = False
    micro_batches: int = 1
    uneven: Uneven = "split"

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = step_errors(self)
        if not is_count(self.num_workers) or self.num_workers < 2:
            errors.append(
                f"num_workers must be an integer of at least 2, not {self.num_workers!r}: "
                f"one process is kind {Mirrored.kind!r}"
            )
        errors += count_errors(self, "replicas_per_worker")
        if self.min_workers is not None and not is_count(self.min_workers):
            errors.append(f"min_workers must be an integer of at least 1, not {self.min_workers!r}")
        elif not errors and self.min_workers is not None and self.min_workers > self.num_workers:
            errors.append(
                f"min_workers must be at most num_workers ({self.num_workers}), not "
                f"{self.min_workers}"
            )
        known = get_args(Placement)
        if self.placement not in known:
            errors.append(
                f"placement must be {one_of(known)}, not {self.placement!r}"
                f"{did_you_mean(self.placement, known)}"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_replicas(self) -> int:
        """Number of model replicas in all workers."""
        return self.num_workers * self.replicas_per_worker

    @property
    def in_a_worker(self) -> Mirrored:
        """Parallelism within a worker."""
        return Mirrored(
            self.replicas_per_worker,
            synchronized_batch_norm=self.synchronized_batch_norm,
            micro_batches=self.micro_batches,
            uneven=self.uneven,
        )

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: one device per replica."""
        return Mirrored(self.num_replicas).resources(gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each worker."""
        share = TrialResources(
            resources.cpus // self.num_workers, resources.gpus / self.num_workers
        )
        return (share,) * self.num_workers

    def check(self, resources: TrialResources) -> None:
        """Check that a trial's resources can be divided among the workers and fit the replicas.

        Raises:
            InvalidSettingsError: They cannot; the message lists all errors.
        """
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
        if errors:
            raise InvalidSettingsError(errors)
