"""Asynchronous data parallelism with a parameter server."""

from typing import ClassVar

from tune_tf.parallelism.parallelism import Count, Parallelism, Placement
from tune_tf.validation import validated


@validated
class Asynchronous(Parallelism):
    """Asynchronous workers that send gradients to a parameter server.

    Each worker computes the gradient of a whole batch, so a slow one does not delay the others. The
    server applies gradients as they arrive; the staleness of a gradient is the number of updates
    since its weights were read. With more than one worker, results depend on the order of arrival.

    Args:
        num_workers: Processes that compute gradients. The server is one more, on the CPUs of the
            first one.
        max_staleness: Largest number of updates by which a gradient may be behind. An older one is
            dropped and its batch recomputed. With 0, workers would wait for each other.
        placement: ``"pack"`` uses as few nodes as possible, ``"spread"`` as many as possible, and
            ``"strict_spread"`` one node per worker.
        micro_batches: Pieces into which a worker splits a batch to save memory.
    """

    kind: ClassVar[str] = "asynchronous"
    trainable: ClassVar[str] = "tune_tf.trainables.asynchronous:AsynchronousTrainable"
    part: ClassVar[str] = "asynchronous worker"
    shares_gpus: ClassVar[bool] = True
    supports_row_functions: ClassVar[bool] = False

    num_workers: Count = 2
    max_staleness: Count = 8
    placement: Placement = "pack"
    micro_batches: Count = 1

    @property
    def in_processes(self) -> bool:
        """Whether models train in processes of their own, one per bundle."""
        return True

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_workers
