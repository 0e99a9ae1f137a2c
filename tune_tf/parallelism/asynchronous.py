"""Workers that send gradients to a parameter server, none waiting for another."""

from dataclasses import dataclass
from typing import ClassVar, get_args

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.setting_errors import Placement, is_count
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Asynchronous:
    """Workers that compute gradients by themselves and a server that applies them as they come.

    Each worker takes a whole batch, so a slow one holds up none of the others. In return its
    gradient may be of weights that have been updated since: how often is its staleness. The
    numbers of a trial depend on which gradient comes first, except with one worker.

    Args:
        num_workers: Processes that compute gradients; the server is one more.
        max_staleness: Updates that a gradient may be behind. An older one is dropped, and its
            batch is done again.
        server_cpus: CPUs that the server reserves for itself; 0 where there is none to spare: it
            uses those of the first worker then.
        max_replacements: Workers that died or fell silent which a trial replaces; one more ends it.
        placement: As in :class:`MultiWorker`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
    """

    kind: ClassVar[str] = "asynchronous"
    num_replicas: ClassVar[int] = 1  # each batch is of one worker

    num_workers: int = 2
    max_staleness: int = 8
    server_cpus: int = 1
    max_replacements: int = 4
    placement: Placement = "pack"
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        errors = [
            f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}"
            for name in ("num_workers", "micro_batches")
            if not is_count(getattr(self, name))
        ]
        if not is_count(self.max_staleness):
            errors.append(
                f"max_staleness must be a whole number of at least 1, not {self.max_staleness!r}: "
                "a bound of 0 takes a gradient only if no other came since, so the workers wait "
                "for each other; that is synchronous, kind 'multi_worker'"
            )
        errors += [
            f"{name} must be a whole number of at least 0, not {getattr(self, name)!r}"
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
        """How a worker takes its batch."""
        return Mirrored(micro_batches=self.micro_batches)

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a worker."""
        return TrialResources(
            cpus=self.num_workers + self.server_cpus,
            gpus=self.num_workers if gpus_in_cluster else 0,
        )

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process gets of a trial's resources: the workers, then the server."""
        worker = TrialResources(
            (resources.cpus - self.server_cpus) // self.num_workers,
            resources.gpus / self.num_workers,
        )
        server = (TrialResources(self.server_cpus),) if self.server_cpus else ()
        return (*(worker,) * self.num_workers, *server)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that do not give every worker the same, or not what it can use.

        Args:
            resources: Of the whole trial, all workers and the server together.

        Raises:
            InvalidSettingsError: Tells all that does not fit.
        """
        errors = []
        cpus, workers = resources.cpus - self.server_cpus, self.num_workers
        if cpus < workers or cpus % workers:
            errors.append(
                f"resources.cpus is {resources.cpus}, of which {cpus} are left for "
                f"{workers} workers beside the {self.server_cpus} of the server: it is that of the "
                "whole trial, and all workers get the same, at least one; use "
                f"{self.server_cpus} plus a multiple of {workers}, or server_cpus: 0"
            )
        if resources.gpus and resources.gpus > workers:
            errors.append(
                f"resources.gpus is {resources.gpus:g} for {workers} workers: a worker uses one "
                "GPU or a share of one; use more workers or fewer GPUs"
            )
        if errors:
            raise InvalidSettingsError(errors)
