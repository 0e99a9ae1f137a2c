"""How one trial is spread over devices."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tune_tf.errors import InvalidSettingsError, near_ones, one_of
from tune_tf.resources import TrialResources

Placement = Literal["pack", "spread", "strict_spread"]
"""Where the workers of a trial go: close together, apart where possible, or never on one node."""

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
        faults = []
        if not _is_count(self.num_replicas):
            faults.append(
                f"num_replicas must be a whole number of at least 1, not {self.num_replicas!r}"
            )
        faults += _step_faults(self)
        if self.max_replicas is not None and not _is_count(self.max_replicas):
            faults.append(
                f"max_replicas must be a whole number of at least 1, not {self.max_replicas!r}"
            )
        elif not faults and self.max_replicas is not None and self.max_replicas < self.num_replicas:
            faults.append(
                f"max_replicas must be at least num_replicas, {self.num_replicas}, not "
                f"{self.max_replicas}"
            )
        if faults:
            raise InvalidSettingsError(faults)

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


@dataclass(frozen=True)
class MultiWorker:
    """Copies of the model in several processes, which may be on several nodes.

    Each process, a worker, trains on its part of every global batch. The global batch size does
    not depend on their number, and neither do the numbers that come out.

    Args:
        num_workers: Processes, at least 2.
        replicas_per_worker: Copies of the model in a process, one a GPU; 1 without GPUs.
        min_workers: With how many a trial may go on after a node was lost that the cluster cannot
            replace, at least 1; None: it waits until there are ``num_workers`` again.
        placement: ``"pack"``: as few nodes as possible. ``"spread"``: as many as possible.
            ``"strict_spread"``: a node for each worker, or the trial does not start.
        synchronized_batch_norm: As in :class:`Mirrored`, over the rows of all workers.
        micro_batches: As in :class:`Mirrored`.
        uneven: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
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
        """Refuse bad values when made."""
        faults = _step_faults(self)
        if not _is_count(self.num_workers) or self.num_workers < 2:
            faults.append(
                f"num_workers must be a whole number of at least 2, not {self.num_workers!r}: "
                f"one process is kind {Mirrored.kind!r}"
            )
        if not _is_count(self.replicas_per_worker):
            faults.append(
                "replicas_per_worker must be a whole number of at least 1, not "
                f"{self.replicas_per_worker!r}"
            )
        if self.min_workers is not None and not _is_count(self.min_workers):
            faults.append(
                f"min_workers must be a whole number of at least 1, not {self.min_workers!r}"
            )
        elif not faults and self.min_workers is not None and self.min_workers > self.num_workers:
            faults.append(
                f"min_workers must be at most num_workers, {self.num_workers}, not "
                f"{self.min_workers}"
            )
        known = get_args(Placement)
        if self.placement not in known:
            faults.append(
                f"placement must be {one_of(known)}, not {self.placement!r}"
                f"{near_ones(self.placement, known)}"
            )
        if faults:
            raise InvalidSettingsError(faults)

    @property
    def num_replicas(self) -> int:
        """Copies of the model in all workers together."""
        return self.num_workers * self.replicas_per_worker

    @property
    def in_a_worker(self) -> Mirrored:
        """How a worker spreads its part over its own devices."""
        return Mirrored(
            self.replicas_per_worker,
            synchronized_batch_norm=self.synchronized_batch_norm,
            micro_batches=self.micro_batches,
            uneven=self.uneven,
        )

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a replica."""
        return Mirrored(self.num_replicas).resources(gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each worker gets of a trial's resources."""
        share = TrialResources(
            resources.cpus // self.num_workers, resources.gpus / self.num_workers
        )
        return (share,) * self.num_workers

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that do not give every worker the same, or not what it can use.

        Args:
            resources: Of the whole trial, all workers together.

        Raises:
            InvalidSettingsError: Tells all that does not fit.
        """
        faults = []
        for name, count in {"cpus": resources.cpus, "gpus": resources.gpus}.items():
            if count % self.num_workers:
                faults.append(
                    f"resources.{name} is {count:g}, which does not divide by "
                    f"parallelism.num_workers, {self.num_workers}: it is that of the whole trial, "
                    "and all workers get the same; use a multiple"
                )
        if not faults and resources.gpus and resources.gpus != self.num_replicas:
            faults.append(
                f"resources.gpus is {resources.gpus:g} but the trial has {self.num_replicas} "
                f"replicas ({self.num_workers} workers with {self.replicas_per_worker} each): a "
                "replica uses exactly one GPU; make the two equal"
            )
        if not resources.gpus and self.replicas_per_worker > 1:
            faults.append(
                f"parallelism.replicas_per_worker is {self.replicas_per_worker} but no GPUs are "
                "reserved: a worker on CPUs has one replica; use more workers"
            )
        if faults:
            raise InvalidSettingsError(faults)


def _step_faults(spread: "Parallelism") -> list[str]:
    """Return what is wrong with the settings that all kinds have."""
    faults = []
    if not _is_count(spread.micro_batches):
        faults.append(
            f"micro_batches must be a whole number of at least 1, not {spread.micro_batches!r}"
        )
    if not isinstance(spread.synchronized_batch_norm, bool):
        faults.append(
            f"synchronized_batch_norm must be true or false, not {spread.synchronized_batch_norm!r}"
        )
    if spread.uneven not in get_args(Uneven):
        faults.append(f"uneven must be {one_of(get_args(Uneven))}, not {spread.uneven!r}")
    return faults


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


Parallelism = Mirrored | MultiWorker
"""Any of the values that say how a trial is spread."""
