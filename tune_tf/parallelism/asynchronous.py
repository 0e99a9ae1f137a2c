"""Asynchronous data parallelism with a parameter server."""

from dataclasses import dataclass
from typing import ClassVar, get_args

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.setting_errors import Placement, is_count
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Asynchronous:
    """Asynchronous workers that send gradients to a parameter server.

    Each worker computes the gradient of a whole batch, so a slow one does not delay the others. The
    server applies gradients as they arrive; the staleness of a gradient is the number of updates
    since its weights were read. With more than one worker, results depend on the order of arrival.

    Args:
        num_workers: Processes that compute gradients, besides the server.
        max_staleness: Largest number of updates by which a gradient may be behind. An older one is
            dropped and its batch recomputed.
        server_cpus: CPUs reserved for the server; with 0 it shares those of the first worker.
        max_replacements: Dead or silent workers that a trial replaces; one more fails the trial.
        placement: As in :class:`MultiWorker`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "asynchronous"
    num_replicas: ClassVar[int] = 1  # a batch is not split over workers

    num_workers: int = 2
    max_staleness: int = 8
    server_cpus: int = 1
    max_replacements: int = 4
    placement: Placement = "pack"
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = [
            f"{name} must be an integer of at least 1, not {getattr(self, name)!r}"
            for name in ("num_workers", "micro_batches")
            if not is_count(getattr(self, name))
        ]
        if not is_count(self.max_staleness):
            errors.append(
                f"max_staleness must be an integer of at least 1, not {self.max_staleness!r}: a "
                "bound of 0 accepts a gradient only if no other has arrived since, so the workers "
                "wait for each other; that is synchronous, kind 'multi_worker'"
            )
        errors += [
            f"{name} must be an integer of at least 0, not {getattr(self, name)!r}"
            for name in ("server_cpus", "max_replacements")
            if not is_count(getattr(self, name)) and getattr(self, name) != 0
        ]
        placements = get_args(Placement)
        if self.placement not in placements:
            errors.append(
                f"placement must be {one_of(placements)}, not {self.placement!r}"
                f"{did_you_mean(self.placement, placements)}"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def in_a_worker(self) -> Mirrored:
        """Parallelism within a worker."""
        return Mirrored(micro_batches=self.micro_batches)

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: one device per worker."""
        return TrialResources(
            cpus=self.num_workers + self.server_cpus,
            gpus=self.num_workers if gpus_in_cluster else 0,
        )

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process: the workers, then the server."""
        worker = TrialResources(
            (resources.cpus - self.server_cpus) // self.num_workers,
            resources.gpus / self.num_workers,
        )
        server = (TrialResources(self.server_cpus),) if self.server_cpus else ()
        return (*(worker,) * self.num_workers, *server)

    def check(self, resources: TrialResources) -> None:
        """Check that a trial's resources can be divided equally among the workers.

        Raises:
            InvalidSettingsError: They cannot; the message lists all errors.
        """
        errors = []
        cpus, workers = resources.cpus - self.server_cpus, self.num_workers
        if cpus < workers or cpus % workers:
            errors.append(
                f"resources.cpus is {resources.cpus}, which leaves {cpus} for {workers} workers "
                f"besides the {self.server_cpus} of the server: it is for the whole trial, and all "
                f"workers get the same, at least one; use {self.server_cpus} plus a multiple of "
                f"{workers}, or server_cpus: 0"
            )
        if resources.gpus and resources.gpus > workers:
            errors.append(
                f"resources.gpus is {resources.gpus:g} for {workers} workers: a worker uses one "
                "GPU or a share of one; use more workers or fewer GPUs"
            )
        if errors:
            raise InvalidSettingsError(errors)
