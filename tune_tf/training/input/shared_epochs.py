"""Input rows that are computed once per node and shared by its trials through tf.data's service."""

import hashlib
import itertools
import os
import socket
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tune_tf.data.leased_actor import BEATS, LeasedActor, leased_actor
from tune_tf.data.nested import leaves_of, num_bytes
from tune_tf.data.node_cache.node_cache import KEEP_S
from tune_tf.data.pipeline import Pipeline
from tune_tf.data.prepare.preparation import to_pickle
from tune_tf.errors import WorkloadError

_NAME = "epochs"


class EpochService(LeasedActor):
    """Ray actor that runs a dispatcher and a worker of tf.data's service, one per node.

    It uses no GPU and reserves nothing, because the trials that wait for it often hold all
    resources. A restart keeps its ports, because readers hang if nothing listens there, but raise
    if the service does not know them. It lives ``keep_s`` after the last heartbeat of a reader.
    """

    def __init__(self, keep_s: float, ports: tuple[int, int]) -> None:
        super().__init__(keep_s)
        # An actor that reserves no GPU sees all of them, and TensorFlow would take their memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from tensorflow.data.experimental import service

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

    async def address(self, user: str) -> str:
        """Return the address of the dispatcher for a process that is going to read."""
        self._lease(_NAME, user)
        return self._address


_CHUNK_ROWS = 32
"""Rows per element of the service; trials rebatch them to their batch sizes."""
_MAX_EPOCH_BYTES = 8e9
"""Limit below the 10 GB window of the service's cache, outside which a late reader misses rows."""
_MAX_SOURCE_BYTES = 100e6
_TRIES = 3


class SharedEpochs:
    """Reader of a pipeline's epochs from the node's service, which computes each only once.

    Raises:
        WorkloadError: The rows are too large to share, or a function cannot be pickled.
    """

    _count = itertools.count()

    def __init__(self, pipeline: Pipeline, name: str, epoch_bytes: int) -> None:
        files = "let rows name files that map reads"
        for subject, size, limit, remedy in (
            ("rows of an epoch", epoch_bytes, _MAX_EPOCH_BYTES, "leave shared out"),
            ("arrays in rows", num_bytes(pipeline.rows), _MAX_SOURCE_BYTES, files),
        ):
            if size > limit:
                raise WorkloadError(
                    f"the {subject} of Data.{name} take {size / 1e9:.1f} GB, but a shared Pipeline "
                    f"can hold {limit / 1e9:.1f} GB: {remedy}"
                )
        self._num_rows = pipeline.num_rows
        digest = hashlib.sha256(f"{keras.config.floatx()} {name}".encode())
        for part in (pipeline.map, pipeline.augment):
            digest.update(to_pickle("a function of a shared Pipeline", part))
        for path, leaf in leaves_of("", pipeline.rows):
            array = np.asarray(leaf)
            digest.update(f"{path} {array.dtype} {array.shape}".encode())
            digest.update(
                "\0".join(map(str, array.flat)).encode() if array.dtype.hasobject else array.data
            )
        self._content = digest.hexdigest()

    def batches(self, rows: tf.data.Dataset, size: int, epoch_key: str) -> tf.data.Dataset:
        """Return the batches of an epoch's single rows, which must be deterministic.

        ``epoch_key`` is the key of the epoch among those of the same pipeline.
        """
        import ray
        from tensorflow.data.experimental import service

        num_chunks = -(-self._num_rows // _CHUNK_ROWS)
        address = _service_address()
        reader = f"{ray.get_runtime_context().get_worker_id()} {next(self._count)}"
        # A late reader starts at the first chunk, either from the cache or, once the job was
        # collected, from a new one. So each reader gets the whole epoch in order.
        endless = _append_empty_chunks(rows.batch(_CHUNK_ROWS).enumerate())
        dataset_id = service.register_dataset(
            address, endless, dataset_id=f"{self._content} {epoch_key}", compression=None
        )
        chunks = service.from_dataset_id(
            service.ShardingPolicy.OFF,
            address,
            dataset_id,
            element_spec=endless.element_spec,
            job_name=f"{self._content} {epoch_key}",
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=reader),
        )
        return chunks.take(num_chunks).enumerate().map(_check_position).rebatch(size)


def _append_empty_chunks(chunks: tf.data.Dataset) -> tf.data.Dataset:
    """Append endless empty chunks: the service shares infinite data sets only."""
    _, spec = chunks.element_spec
    empty = tf.nest.map_structure(lambda leaf: tf.zeros((0, *leaf.shape[1:]), leaf.dtype), spec)
    number = tf.constant(-1, tf.int64)
    return chunks.concatenate(tf.data.Dataset.from_tensors((number, empty)).repeat())


def _check_position(position: tf.Tensor, numbered_chunk: Any) -> Any:
    """Return a chunk; fail if it is not the one expected at this position."""
    number, chunk = numbered_chunk
    with tf.control_dependencies(
        [tf.debugging.assert_equal(position, number, "rows of a shared Pipeline were missed")]
    ):
        return tf.nest.map_structure(tf.identity, chunk)


def _service_address() -> str:
    """Return the address of this node's service, which is started if necessary."""
    import ray

    lost: Exception | None = None
    for _ in range(_TRIES):
        try:
            service, user = leased_actor(
                EpochService, _NAME, KEEP_S, _free_ports(), max_restarts=-1
            )
            address: str = ray.get(service.address.remote(user))
        except ray.exceptions.RayActorError as error:  # its ports may be taken
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
