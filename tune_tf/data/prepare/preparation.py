"""Preparation of records in this process, in a worker process, or in a pool of them."""

import itertools
import logging
import os
import pickle
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested
from tune_tf.data.prepare.chunk import CHUNK_BYTES, AssembledRows, Chunk, assemble, chunks
from tune_tf.errors import WorkerLostError, WorkloadError

_BATCHES_A_WORKER = 8
_MAX_BATCH = 1024  # records

_MAX_RETRIES = 3
"""Retries of records after a lost process; limited, because a record may kill every process."""

_POOL_READY_S = 3.0
"""Time that the actors of a pool take to start on an idle machine."""

_MEMORY_BYTES = 1
"""Reserved by an actor: Ray ignores the node affinity of an actor that reserves nothing."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """Records and the function that makes a row of each; ``version`` distinguishes equal ones."""

    records: Sequence[Any]
    fn: Callable[[Any], Nested]
    stop_at_failure: bool
    version: str = ""

    def run(self) -> AssembledRows:
        """Prepare the records in this process."""
        stream = chunks(0, self.records, self.fn, stop_at_failure=self.stop_at_failure)
        return assemble(stream, len(self.records), stop_at_failure=self.stop_at_failure)

    def key(self) -> str:
        """Return the identifier of the rows, the same in every process.

        If the function or a record cannot be compared, every call returns a new one.
        """
        key = digest((self.fn, self.stop_at_failure, self.version, self.records))
        return (key or uuid.uuid4().bytes).hex()

    def pack(self, num_workers: int) -> "PackedPreparation":
        """Return the picklable form, in batches of records for a number of workers."""
        share = -(-len(self.records) // (num_workers * _BATCHES_A_WORKER))
        size = min(max(share, 1), _MAX_BATCH)
        return PackedPreparation(
            fn=PackedFunction(to_pickle("the function", self.fn), digest(self.fn)),
            batches={
                start: to_pickle(
                    f"one of the records from {start} on", self.records[start : start + size]
                )
                for start in range(0, len(self.records), size)
            },
            num_records=len(self.records),
            stop_at_failure=self.stop_at_failure,
        )


class ChangedFunctionError(WorkloadError):
    """A function that differs from that of the sending process, which should call it itself."""


@dataclass(frozen=True)
class PackedFunction:
    """Pickled function with a digest that detects changes on unpickling."""

    pickled: bytes
    digest: bytes | None

    def unpack(self) -> Callable[[Any], Nested]:
        """Return the function.

        Raises:
            ChangedFunctionError: The module, imported again here, has other code or global values.
        """
        fn: Callable[[Any], Nested] = pickle.loads(self.pickled)  # noqa: S301  of the same job
        if self.digest is not None and digest(fn) != self.digest:
            raise ChangedFunctionError(f"{fn!r} differs from that in the requesting process")
        return fn


@dataclass(frozen=True, eq=False)
class PackedPreparation:
    """Picklable preparation whose records are unpickled only where they are needed.

    ``batches`` are pickled lists of consecutive records by the number of the first one.
    """

    fn: PackedFunction
    batches: Mapping[int, bytes]
    num_records: int
    stop_at_failure: bool

    def run(self) -> AssembledRows:
        """Prepare the records. Call it in a dedicated process.

        Rows that do not fit into this node's object store, which Ray then keeps in a file, are
        not collected in memory either.

        This process starts alone and hands over to a pool of actors if the rest would take longer
        than starting the pool.

        Raises:
            ChangedFunctionError: The function differs from that of the sending process.
            WorkerLostError: Processes of the pool were lost repeatedly over the same records.
        """
        return assemble(
            self._chunks(),
            self.num_records,
            stop_at_failure=self.stop_at_failure,
            max_memory=object_store_bytes(),
        )

    def _chunks(self) -> Iterator[Chunk]:
        began = time.monotonic()
        worker = _Worker(self.fn, self.stop_at_failure)
        rest = dict(self.batches)
        for num_done, (start, records) in enumerate(self.batches.items(), 1):
            yield from worker.chunks(start, records)
            del rest[start]
            if (time.monotonic() - began) / num_done * len(rest) > _POOL_READY_S:
                yield from _chunks_by_pool(replace(self, batches=rest))
                return


class _Worker:
    """Preparation of pickled records; an actor of the pool, or this process."""

    def __init__(self, fn: PackedFunction, stop_at_failure: bool) -> None:
        # TensorFlow would take the trials' GPU memory for decoding images.
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        self._packed_fn = fn
        self._stop_at_failure = stop_at_failure

    def __call__(self, table: Any) -> Iterator[Any]:
        """Yield chunks, each as a table of one row."""
        for batch in table.to_pylist():
            yield from map(_to_table, self.chunks(**batch))

    def chunks(self, start: int, records: bytes) -> Iterator[Chunk]:
        return chunks(
            start,
            pickle.loads(records),  # noqa: S301  from a process of the same job
            self._fn,
            stop_at_failure=self._stop_at_failure,
        )

    @cached_property
    def _fn(self) -> Callable[[Any], Any]:
        return self._packed_fn.unpack()


def _chunks_by_pool(packed: PackedPreparation) -> Iterator[Chunk]:
    """Prepare records in a pool of actors of Ray Data and yield chunks in the records' order.

    The actors reserve no CPUs, because the waiting processes have often reserved all of them.
    """
    import ray.data

    # Ray's core writes actor restarts to stderr; its log files keep them.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.target_max_block_size = CHUNK_BYTES  # larger blocks are spilled by a small store
    # Items in memory need no read task, for which no CPU might be free.
    items = [{"start": start, "records": records} for start, records in packed.batches.items()]
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Worker,
        fn_constructor_args=(packed.fn, packed.stop_at_failure),
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=min(num_cpus(), len(items))),
        num_cpus=0,
        memory=_MEMORY_BYTES,
        ray_remote_args_fn=_ActorOptions(),
    )
    last = 0
    try:
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            for chunk in _from_table(table):
                last = max(last, chunk.last)
                yield chunk
    except ray.exceptions.RayActorError as error:
        raise WorkerLostError(
            f"the process that prepares record {last} or one of the next ones was lost "
            f"{1 + _MAX_RETRIES} times: call the function for them in a separate process to see "
            "what ends it, such as a crash in a library or too little memory"
        ) from error


class _ActorOptions:
    """Actor options that distribute the actors over nodes in proportion to their CPUs."""

    def __init__(self) -> None:
        self._node_ids = itertools.cycle(_cpu_nodes() or [None])

    def __call__(self) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"max_task_retries": _MAX_RETRIES}
        node_id = next(self._node_ids)
        if node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=True)
        return options


def num_cpus() -> int:
    """Return the number of CPUs of the cluster, reserved or not, at least 1."""
    return max(len(_cpu_nodes()), 1)


def _cpu_nodes() -> list[str | None]:
    """Return the node of each CPU."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return [node["NodeID"] for node in nodes for _ in range(int(node["Resources"].get("CPU", 0)))]


def object_store_bytes() -> float:
    """Return the size of this node's object store."""
    import ray

    node_id = ray.get_runtime_context().get_node_id()
    nodes = (node["Resources"] for node in ray.nodes() if node["NodeID"] == node_id)
    resources: dict[str, float] = next(nodes, {})
    return resources.get("object_store_memory", 0.0)


def _to_table(chunk: Chunk) -> Any:
    """Return a chunk as one row of bytes, which keeps dtypes and shapes exactly."""
    import pyarrow as pa

    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(chunk, protocol=5, buffer_callback=buffers.append)
    arrays = [_to_array(buffer.raw()) for buffer in buffers]
    joined = pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_binary())
    return pa.table(
        {
            "chunk": pa.array([pickled], pa.large_binary()),
            "arrays": pa.LargeListArray.from_arrays([0, len(arrays)], joined),
        }
    )


def _to_array(memory: memoryview) -> Any:
    """Return an array of one value, which is released: ``pa.array`` keeps memory views forever."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, memory.nbytes], np.int64))
    buffers = [None, ends, pa.py_buffer(memory)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, buffers)


def _from_table(table: Any) -> Iterator[Chunk]:
    """Yield the chunks in a table; their arrays are views of it."""
    for pickled, arrays in zip(table["chunk"], table["arrays"], strict=True):
        buffers = [array.as_buffer() for array in arrays.values]
        yield pickle.loads(pickled.as_buffer(), buffers=buffers)  # noqa: S301  as above


def to_pickle(name: str, value: Any) -> bytes:
    """Pickle a value, including one defined in a script, for other processes.

    Raises:
        WorkloadError: The value cannot be pickled.
    """
    from ray import cloudpickle  # unlike pickle, it supports functions defined in a script

    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise WorkloadError(
            f"{name} cannot be sent to the processes that prepare data "
            f"({type(error).__name__}: {error}): use plain values, and a function that holds no "
            "open file, lock or tensor"
        ) from error
    return pickled
