"""Asynchronous data parallelism with a parameter server."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from tune_tf.parallelism.parallelism import Count, Minimum, Parallelism, Placement
from tune_tf.resources import TrialResources

_STALENESS_REMEDY = (
    "a bound of 0 accepts a gradient only if no other has arrived since, so the workers wait for "
    "each other; that is synchronous, kind 'multi_worker'"
)


@dataclass(frozen=True)
class Asynchronous(Parallelism):
    """Asynchronous workers that send gradients to a parameter server.

    Each worker computes the gradient of a whole batch, so a slow one does not delay the others. The
    server applies gradients as they arrive; the staleness of a gradient is the number of updates
    since its weights were read. With more than one worker, results depend on the order of arrival.

    Args:
        num_workers: Processes that compute gradients, besides the server.
        max_staleness: Largest number of updates by which a gradient may be behind. An older one is
            dropped and its batch recomputed.
        server_cpus: CPUs reserved for the server; with 0 it shares those of the first worker.
        placement: ``"pack"`` uses as few nodes as possible, ``"spread"`` as many as possible, and
            ``"strict_spread"`` one node per process.
        micro_batches: Pieces into which a worker splits a batch to save memory.
    """

    kind: ClassVar[str] = "asynchronous"
    trainable: ClassVar[str] = "tune_tf.trainables.asynchronous:AsynchronousTrainable"
    supports_row_functions: ClassVar[bool] = False
    shares_frozen: ClassVar[bool] = False

    num_workers: Count = 2
    max_staleness: Annotated[int, Minimum(1, _STALENESS_REMEDY)] = 8
    server_cpus: Annotated[int, Minimum(0)] = 1
    placement: Placement = "pack"
    micro_batches: Count = 1

    @classmethod
    def on_devices(cls, num_devices: int) -> Self | None:
        """Return asynchronous workers; the server shares the cores of the first one."""
        return cls(num_devices, server_cpus=0)

    @property
    def in_processes(self) -> bool:
        """Whether models train in processes of their own, one per bundle."""
        return True

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_workers

    @property
    def label(self) -> str:
        """Short readable description."""
        return f"{self.num_workers} asynchronous workers"

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: one device per worker."""
        gpus = self.num_workers if gpus_in_cluster else 0
        return TrialResources(self.num_workers + self.server_cpus, gpus)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process: the workers, then the server."""
        worker = resources.with_counts(
            (resources.cpus - self.server_cpus) // self.num_workers,
            resources.gpus / self.num_workers,
        )
        server = (TrialResources(self.server_cpus),) if self.server_cpus else ()
        return (*(worker,) * self.num_workers, *server)

    def resource_errors(self, resources: TrialResources) -> list[str]:
        """Return the errors of a trial's resources, which are divided among its processes."""
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
        return errors
