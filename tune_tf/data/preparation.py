"""Preparation of records in this process, and by tasks on the cluster if it takes long."""

import itertools
import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from tune_tf.data.chunk import AssembledRows, Chunk, chunks_of
from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested
from tune_tf.data.node_store import is_connected
from tune_tf.errors import WorkerLostError, WorkloadError

_CHUNK_BYTES = 16 * 2**20
"""Size of the rows of a batch: a few images or many numbers, little beside a worker's memory."""
_MAX_BATCH = 1024  # records
_BATCHES_A_CPU = 8
_UNREAD_A_CPU = 4  # batches

_MAX_RETRIES = 3
"""Retries of records after a lost process; limited, because a record may kill every process."""

_TASKS_READY_S = 3.0
"""Time that the processes of tasks take to start on an idle machine."""

_SHARE_OF_MEMORY = 0.5
"""Largest share of the available memory for rows; more are written to a file."""

_log = logging.getLogger(__name__)


class ChangedFunctionError(WorkloadError):
    """A function that differs from that of the sending process, which should call it itself."""


def prepare(
    records: list[Any], fn: Callable[[Any], Nested], *, stop_at_failure: bool
) -> AssembledRows:
    """Return the rows that a function makes of records.

    This process starts alone, and hands over to tasks on the connected Ray cluster if the rest
    takes longer than starting them.

    Raises:
        WorkloadError: The function or a record cannot be pickled for the tasks.
        WorkerLostError: The processes of tasks were lost repeatedly over the same records.
    """
    limit = _SHARE_OF_MEMORY * psutil.virtual_memory().available
    assembled = AssembledRows(len(records), limit)
    for chunk in _chunks(records, fn, assembled, stop_at_failure):
        assembled.add(chunk)
        if stop_at_failure and assembled.failures:
            break
    return assembled


def _chunks(
    records: list[Any], fn: Callable[[Any], Nested], assembled: AssembledRows, stop: bool
) -> Iterator[Chunk]:
    """Yield the rows in the order of their records, while ``assembled`` has all before."""
    start, alone = 0, not is_connected()
    while start < len(records):
        size = min(max(start, 1), _max_batch(assembled))
        began = time.monotonic()
        yield from chunks_of(start, records[start : start + size], fn, stop_at_failure=stop)
        start += size
        rest_s = (time.monotonic() - began) / size * (len(records) - start)
        if alone or start == 1 or rest_s < _TASKS_READY_S:  # the first record imports modules
            continue
        try:
            yield from _chunks_by_tasks(start, records, fn, _max_batch(assembled), stop)
            return
        except ChangedFunctionError:
            alone = True
            _log.warning(
                "the records are prepared in this process only: the module of %s (its file or a "
                "global value) was changed after its import, which no other process sees; pass "
                "such values with functools.partial",
                getattr(fn, "__qualname__", fn),
            )


def _max_batch(assembled: AssembledRows) -> int:
    return max(1, min(_MAX_BATCH, int(_CHUNK_BYTES // max(assembled.row_bytes, 1))))


def _chunks_by_tasks(
    start: int, records: list[Any], fn: Callable[[Any], Nested], max_batch: int, stop: bool
) -> Iterator[Chunk]:
    """Yield the rows of the records from ``start`` on, in their order.

    Tasks reserve no CPUs, because the trials that wait for the rows have often reserved all.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = _cpu_nodes()
    size = max(1, min(max_batch, (len(records) - start) // (len(nodes) * _BATCHES_A_CPU)))
    packed = ray.put((_to_pickle("the function", fn), digest(fn)))
    task = ray.remote(num_cpus=0, max_retries=_MAX_RETRIES)(_chunks_by_task)
    batches, node_ids = iter(range(start, len(records), size)), itertools.cycle(nodes)
    unread: deque[tuple[int, Any]] = deque()
    running: list[Any] = []
    number = start
    try:
        while True:
            room = min(len(nodes) - len(running), _UNREAD_A_CPU * len(nodes) - len(unread))
            for first in itertools.islice(batches, room):
                batch = _to_pickle(
                    f"one of the records from {first} on", records[first : first + size]
                )
                affinity = NodeAffinitySchedulingStrategy(next(node_ids), soft=True)
                options = {"scheduling_strategy": affinity, "name": f"records from {first} on"}
                running.append(task.options(**options).remote(packed, first, batch, stop))
                unread.append((first, running[-1]))
            if not unread:
                return
            if running:
                _, running = ray.wait(running)
            while unread and unread[0][1] not in running:
                number, batch = unread.popleft()
                yield from ray.get(batch)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise WorkerLostError(
            f"the process that prepares record {number} or one of the next ones was lost "
            f"{1 + _MAX_RETRIES} times: call the function for them in a separate process to see "
            f"what ends it, such as a crash in a library or too little memory ({error})"
        ) from error
    finally:
        for each in running:
            ray.cancel(each)


def _chunks_by_task(
    packed: tuple[bytes, bytes | None], first: int, records: bytes, stop: bool
) -> list[Chunk]:
    # TensorFlow would take the trials' GPU memory for decoding images.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    fn = pickle.loads(packed[0])  # noqa: S301  of the same job, as the records
    if packed[1] is not None and digest(fn) != packed[1]:
        raise ChangedFunctionError(f"{fn!r} differs from that in the requesting process")
    return chunks_of(first, pickle.loads(records), fn, stop_at_failure=stop)  # noqa: S301


def _cpu_nodes() -> list[str]:
    """Return the node of each CPU of the cluster, reserved or not."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    cpus = [node["NodeID"] for node in nodes for _ in range(int(node["Resources"].get("CPU", 0)))]
    return cpus or [node["NodeID"] for node in nodes]


def _to_pickle(name: str, value: Any) -> bytes:
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
