"""Pool of Ray Data workers that prepare records."""

import itertools
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from tune_tf.data.prepare.chunk import Chunk, chunks
from tune_tf.data.prepare.preparation import PackedFunction, PackedPreparation
from tune_tf.errors import WorkerLostError

_MAX_RETRIES = 3
"""Retries of records after a lost process; limited, because a record may kill every process."""

_POOL_READY_S = 3.0
"""Time that the actors of a pool take to start on an idle machine."""

_MEMORY_BYTES = 1
"""Reserved by an actor: Ray ignores the node affinity of an actor that reserves nothing."""


def num_cpus() -> int:
    """Return the number of CPUs of the cluster, reserved or not, at least 1."""
    return max(int(sum(cpus for _, cpus in _nodes())), 1)


def streamed(
    packed: PackedPreparation, clock: Callable[[], float] = time.monotonic
) -> Iterator[Chunk]:
    """Prepare records and yield chunks of rows in the records' order.

    This process starts alone and hands over to a pool of actors if the rest would take longer than
    starting the pool. Call it in a dedicated process.

    Raises:
        ChangedFunctionError: The function differs from that of the sending process.
        WorkerLostError: Processes of the pool were lost repeatedly over the same records.
    """
    hide_gpus()
    began = clock()
    fn = packed.fn.unpacked()
    for done, (start, chunk) in enumerate(zip(packed.starts, packed.chunks, strict=True), 1):
        records = pickle.loads(chunk)  # noqa: S301  from a process of the same job
        yield from chunks(start, records, fn, stop_at_failure=packed.stop_at_failure)
        if (clock() - began) / done * (len(packed.chunks) - done) > _POOL_READY_S:
            yield from _by_pool(packed.after(done))
            return


def hide_gpus() -> None:
    """Hide the GPUs from TensorFlow, which would take the trials' memory for decoding images."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _by_pool(packed: PackedPreparation) -> Iterator[Chunk]:
    """Prepare records in a pool of actors and yield chunks in the records' order.

    Ray Data schedules the actors, applies backpressure and retries the records of lost processes.
    The actors reserve no CPUs, because the waiting processes have often reserved all of them.
    Silences Ray Data in this process.
    """
    import ray.data

    # Ray's core writes actor restarts to stderr; its log files keep them.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    # Items in memory need no read task, for which no CPU might be free.
    items = [
        {"start": start, "records": chunk}
        for start, chunk in zip(packed.starts, packed.chunks, strict=True)
    ]
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Preparing,
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
            for portion in _chunks_of(table):
                last = max(last, portion.last)
                yield portion
    except ray.exceptions.RayActorError as error:
        raise WorkerLostError(
            f"the process that prepares record {last} or one of the next ones was lost "
            f"{1 + _MAX_RETRIES} times: call the function for them in a separate process to see "
            "what ends it, such as a crash in a library or too little memory"
        ) from error


class _Preparing:
    def __init__(self, fn: PackedFunction, stop_at_failure: bool) -> None:
        hide_gpus()
        self._packed_fn = fn
        self._stop_at_failure = stop_at_failure

    def __call__(self, table: Any) -> Iterator[Any]:
        """Yield chunks, each as a table of one row."""
        columns = (table[name].to_pylist() for name in ("start", "records"))
        for start, records in zip(*columns, strict=True):
            made = chunks(
                start,
                pickle.loads(records),  # noqa: S301  from a process of the same job
                self._fn,
                stop_at_failure=self._stop_at_failure,
            )
            yield from map(_as_table, made)

    @cached_property
    def _fn(self) -> Callable[[Any], Any]:
        return self._packed_fn.unpacked()


class _ActorOptions:
    """Actor options that distribute the actors over nodes in proportion to their CPUs."""

    def __init__(self) -> None:
        ids = [node for node, cpus in _nodes() for _ in range(int(cpus))]
        self._ids = itertools.cycle(ids) if ids else None

    def __call__(self) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"max_task_retries": _MAX_RETRIES}
        if self._ids is not None:
            place = NodeAffinitySchedulingStrategy(next(self._ids), soft=True)
            options["scheduling_strategy"] = place
        return options


def _nodes() -> list[tuple[str, float]]:
    import ray

    return [
        (node["NodeID"], node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]
    ]


def _as_table(portion: Chunk) -> Any:
    """Return a chunk as one row of bytes, which keeps dtypes and shapes exactly."""
    import pyarrow as pa

    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(portion, protocol=5, buffer_callback=buffers.append)
    arrays = [[buffer.raw() for buffer in buffers]]
    return pa.table(
        {
            "head": pa.array([head], pa.large_binary()),
            "arrays": pa.array(arrays, pa.list_(pa.large_binary())),
        }
    )


def _chunks_of(table: Any) -> Iterator[Chunk]:
    """Yield the chunks in a table; their arrays are views of it."""
    for head, arrays in zip(table["head"], table["arrays"], strict=True):
        buffers = [array.as_buffer() for array in arrays.values]
        yield pickle.loads(head.as_buffer(), buffers=buffers)  # noqa: S301  as above
