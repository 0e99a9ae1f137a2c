"""The process of a node in which tf.data's service makes rows for its trials."""

import asyncio
import os

from tune_tf.data.leases import BEATS, Leases, end_when_unwanted

_WHAT = "epochs"


class EpochService:
    """Runs a dispatcher and a worker of tf.data's service; a Ray actor, one a node.

    It sees no GPU and reserves nothing, as the trials that wait for it often hold all. It ends
    itself some time after the last trial, and its epochs with it. Its ports outlive a restart:
    readers wait for ever where nothing listens, and raise where what listens knows nothing of them.

    Args:
        keep_s: Seconds that it outlives the last sign of those who read from it.
        ports: On which dispatcher and worker listen.
    """

    def __init__(self, keep_s: float, ports: tuple[int, int]) -> None:
        # Ray shows all GPUs to an actor that reserves none, and TensorFlow would take their memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from tensorflow.data.experimental import service

        self._keep_s = keep_s
        self._leases = Leases(keep_s)
        self._watch: asyncio.Future[None] | None = None
        forget_ms = int(1000 * keep_s)
        self._dispatcher = service.DispatchServer(
            service.DispatcherConfig(
                port=ports[0],
                job_gc_check_interval_ms=forget_ms // BEATS,
                job_gc_timeout_ms=forget_ms,
            )
        )
        self._address = self._dispatcher.target.partition("://")[2]
        self._worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=self._address, port=ports[1], heartbeat_interval_ms=200
            )
        )

    async def address(self, asker: str) -> str:
        """Return where on this node the dispatcher listens.

        Args:
            asker: Name of the process that is going to read.
        """
        if self._watch is None:
            self._watch = asyncio.ensure_future(
                end_when_unwanted(self._leases, self._keep_s / BEATS, lambda key: None)
            )
        self._leases.want(_WHAT, asker)
        return self._address

    async def hear(self, asker: str) -> None:
        """Note that a process is there."""
        self._leases.hear(asker)
