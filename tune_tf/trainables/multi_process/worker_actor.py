"""A worker of a trial as a Ray actor, whose errors can be read where there is no TensorFlow."""

import traceback
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.worker import TrialProcess, Worker

# What TensorFlow's collectives raise when a peer is gone; found by killing peers.
_LOST_PEER = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")


class WorkerActor:
    """Does what :class:`Worker` does, in a process of its own.

    Args:
        rank: The worker's number in the trial, from 0.
    """

    worker_class: type[TrialProcess] = Worker
    title = "worker {rank}"

    def __init__(self, rank: int) -> None:
        host = ray.util.get_node_ip_address()
        self._place = f"{self.title.format(rank=rank)} on {host}"
        self._worker = self.worker_class(rank, host, host)

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker.

        Raises:
            TuneTfError: As the worker raised it; any other error as its text in a
                :class:`WorkerError`, for the asking process must not load TensorFlow to read it.
        """
        try:
            return getattr(self._worker, method)(*arguments)
        except TuneTfError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the other process raises it
            kind = WorkerLostError if type(error).__name__ in _LOST_PEER else WorkerError
            raise kind(f"{self._place}: {traceback.format_exc()}") from None

    @ray.method(concurrency_group="ping")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Show that the process is alive, also while the worker trains."""


def started(
    actor: Any, rank: int, resources: TrialResources, placement_group: PlacementGroup
) -> Any:
    """Start a worker's actor in its bundle of a placement group; does not wait for it.

    Args:
        actor: A remote :class:`WorkerActor`.
        rank: The worker's number, which is that of its bundle.
        resources: What it reserves.
        placement_group: Where it lives.
    """
    place = PlacementGroupSchedulingStrategy(
        placement_group=placement_group, placement_group_bundle_index=rank
    )
    return actor.options(
        scheduling_strategy=place,
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        max_restarts=0,
    ).remote(rank)
