"""Epochs whose rows are made once for all trials of a node."""

import asyncio
import hashlib
import itertools
import os
import socket
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.nested import leaves_of
from tune_tf.data.node_cache.node_actor import node_actor
from tune_tf.data.node_cache.shared_loads import KEEP_S, is_actor
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.prepare.leases import BEATS, ActorHeartbeat, Leases, end_when_unwanted
from tune_tf.data.prepare.preparation import pickled
from tune_tf.errors import WorkloadError

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


_CHUNK = 32
"""Rows that travel together, of which trials make batches of their own sizes."""
_MAX_EPOCH_BYTES = 8e9
"""Less than the 10 GB of an epoch that tf.data's service keeps at hand for trials that come later:
what slides out of them they would miss."""
_MAX_SOURCE_BYTES = 100e6
_TRIES = 3


class SharedEpochs:
    """Reads the epochs of a pipeline from a process of the node, which makes each only once.

    Args:
        pipeline: Whose rows.
        name: Of the data set, for messages.
        num_bytes: Size of an epoch's rows.

    Raises:
        WorkloadError: The rows are too many to be shared, or their functions cannot travel.
    """

    _count = itertools.count()

    def __init__(self, pipeline: Pipeline, name: str, num_bytes: int) -> None:
        source = sum(leaf.nbytes for _, leaf in leaves_of("", pipeline.rows))
        for what, size, limit, remedy in (
            ("rows of an epoch", num_bytes, _MAX_EPOCH_BYTES, "leave shared out"),
            ("arrays in rows", source, _MAX_SOURCE_BYTES, "let rows name files that map reads"),
        ):
            if size > limit:
                raise WorkloadError(
                    f"the {what} of Data.{name} take {size / 1e9:.1f} GB, and a shared Pipeline "
                    f"can take {limit / 1e9:.1f} GB: {remedy}"
                )
        self._num_rows = pipeline.num_rows
        digest = hashlib.sha256(f"{keras.config.floatx()} {name}".encode())
        for part in (pipeline.map, pipeline.augment):
            digest.update(pickled("a function of a shared Pipeline", part))
        for path, leaf in leaves_of("", pipeline.rows):
            array = np.asarray(leaf)
            digest.update(f"{path} {array.dtype} {array.shape}".encode())
            digest.update(
                "\0".join(map(str, array.flat)).encode() if array.dtype.hasobject else array.data
            )
        self._content = digest.hexdigest()

    @staticmethod
    def are_served() -> bool:
        """Whether this process has others to share with: it is an actor of a Ray cluster."""
        return is_actor()

    def batches(self, rows: tf.data.Dataset, size: int, epoch_key: str) -> tf.data.Dataset:
        """Return the batches of an epoch.

        Args:
            rows: How to make its rows, one by one and always the same.
            size: Rows of a batch; the last one may have less.
            epoch_key: What tells this epoch from others of the same pipeline.
        """
        from tensorflow.data.experimental import service

        num_chunks = -(-self._num_rows // _CHUNK)
        address = _address()
        # Who comes later begins with the first chunk, for all are still at hand; who comes when
        # they were forgotten begins with the first again. So all get a whole epoch, in its order.
        endless = _endless(rows.batch(_CHUNK).enumerate())
        dataset_id = service.register_dataset(
            address, endless, dataset_id=f"{self._content} {epoch_key}", compression=None
        )
        chunks = service.from_dataset_id(
            service.ShardingPolicy.OFF,
            address,
            dataset_id,
            element_spec=endless.element_spec,
            job_name=f"{self._content} {epoch_key}",
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=_reader(self._count)),
        )
        checked = chunks.take(num_chunks).enumerate().map(_in_turn)
        return checked.rebatch(size)


def _endless(numbered: tf.data.Dataset) -> tf.data.Dataset:
    """Return chunks with empty ones behind them: only data without an end can be shared."""
    _, spec = numbered.element_spec
    empty = tf.nest.map_structure(lambda leaf: tf.zeros((0, *leaf.shape[1:]), leaf.dtype), spec)
    behind = tf.constant(-1, tf.int64)
    return numbered.concatenate(tf.data.Dataset.from_tensors((behind, empty)).repeat())


def _in_turn(place: tf.Tensor, numbered: Any) -> Any:
    """Return a chunk, or fail where it is not the one that stands at this place."""
    number, chunk = numbered
    with tf.control_dependencies(
        [tf.debugging.assert_equal(place, number, "rows of a shared Pipeline were missed")]
    ):
        return tf.nest.map_structure(tf.identity, chunk)


def _reader(count: "itertools.count[int]") -> str:
    """Return a name that nobody read an epoch under."""
    import ray

    return f"{ray.get_runtime_context().get_worker_id()} {next(count)}"


def _address() -> str:
    """Return where this node's service listens, which is started if there is none.

    Raises:
        WorkloadError: It cannot be started.
    """
    import ray

    lost: Exception | None = None
    for _ in range(_TRIES):
        try:
            service = node_actor(EpochService, "epochs", KEEP_S, _free_ports(), max_restarts=-1)
            asker = ActorHeartbeat.to(service, KEEP_S / BEATS, "epochs").asker
            address: str = ray.get(service.address.remote(asker))
        except ray.exceptions.RayActorError as error:  # others may have taken its ports
            lost = error
        else:
            return address
    raise WorkloadError(
        "the process that makes the rows of a shared Pipeline cannot be started: see the cause, or "
        "leave shared out"
    ) from lost


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
