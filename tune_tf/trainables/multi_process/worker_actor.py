"""Ray actor of a worker, with errors that can be read without TensorFlow."""

import traceback
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.worker import TrialProcess, Worker

# Errors of TensorFlow's collectives after the loss of a peer; found by killing peers.
_LOST_PEER = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")


class WorkerActor:
    """Ray actor of a :class:`Worker`."""

    worker_class: type[TrialProcess] = Worker
    title = "worker {rank}"

    def __init__(self, rank: int) -> None:
        host = ray.util.get_node_ip_address()
        self._place = f"{self.title.format(rank=rank)} on {host}"
        self._worker = self.worker_class(rank, host, host)

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker.

        Raises:
            TuneTfError: Raised by the worker; any other error becomes a :class:`WorkerError` with
                its text, because the caller must not load TensorFlow to unpickle it.
        """
        try:
            return getattr(self._worker, method)(*arguments)
        except TuneTfError:
            raise
        except Exception as error:  # noqa: BLE001  raised again by the caller
            kind = WorkerLostError if type(error).__name__ in _LOST_PEER else WorkerError
            raise kind(f"{self._place}: {traceback.format_exc()}") from None

    @ray.method(concurrency_group="ping")  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """Respond, also while the worker trains."""


def started(
    actor: Any, rank: int, resources: TrialResources, placement_group: PlacementGroup
) -> Any:
    """Start a worker actor in the bundle of its rank, without waiting for it."""
    place = PlacementGroupSchedulingStrategy(
        placement_group=placement_group, placement_group_bundle_index=rank
    )
    return actor.options(
        scheduling_strategy=place,
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        max_restarts=0,
    ).remote(rank)
