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
"""Times that records are tried again whose process was lost; for ever would hang at a record that
ends every process."""

_POOL_READY_S = 3.0
"""Until the actors of a pool have started, on an idle machine."""

_MEMORY_BYTES = 1
"""Of an actor: one that reserves nothing at all is put on any node, wherever it was sent."""


def num_cpus() -> int:
    """Return the CPUs of the cluster, at least 1, whether they are reserved or not."""
    return max(int(sum(cpus for _, cpus in _nodes())), 1)


def streamed(
    packed: PackedPreparation, clock: Callable[[], float] = time.monotonic
) -> Iterator[Chunk]:
    """Prepare records and yield what comes of them, in the records' order.

    This process begins. Where it would take longer than a pool of actors to get ready, that goes
    on. Call it in a process that is only for this.

    Args:
        packed: What to do.
        clock: Seconds that only grow.

    Raises:
        ChangedFunctionError: The function is another one here.
        WorkerLostError: A process of the pool was lost again and again over the same records.
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
    """Leave the GPUs to the trials: TensorFlow would take their memory for decoding pictures."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def _by_pool(packed: PackedPreparation) -> Iterator[Chunk]:
    """Prepare records by a pool of actors and yield what comes of them, in the records' order.

    Ray Data keeps the actors busy, holds back when portions are not taken, and tries again
    elsewhere what a lost process had in hand. Its actors reserve no CPUs: who asks for data has
    often reserved all of them, and waits. Ray Data is made quiet in this process.
    """
    import ray.data

    # Ray's core writes there that actors may have to be started again; its log files keep it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    # A data set of items in memory needs no task to be read, for which no CPU might be free.
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
        ray_remote_args_fn=_Places(),
    )
    last = 0
    try:
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            for portion in _portions_of(table):
                last = max(last, portion.last)
                yield portion
    except ray.exceptions.RayActorError as error:
        raise WorkerLostError(
            f"the process that prepares a record, {last} or one of the next ones, was lost "
            f"{1 + _MAX_RETRIES} times: call the function for them in a process of its own to see "
            "what ends it, such as a crash in a library or too little memory"
        ) from error


class _Preparing:
    """What an actor of the pool does.

    Args:
        fn: The function.
        stop_at_failure: Whether records of a chunk after one that failed are left untried.
    """

    def __init__(self, fn: PackedFunction, stop_at_failure: bool) -> None:
        hide_gpus()
        self._packed_fn = fn
        self._stop_at_failure = stop_at_failure

    def __call__(self, table: Any) -> Iterator[Any]:
        """Yield portions of chunks, each as a table of one row."""
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


class _Places:
    """Where the actors go: to the nodes in turn, as often to each as it has CPUs."""

    def __init__(self) -> None:
        ids = [node for node, cpus in _nodes() for _ in range(int(cpus))]
        self._ids = itertools.cycle(ids) if ids else None

    def __call__(self) -> dict[str, Any]:
        """Return an actor's options."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"max_task_retries": _MAX_RETRIES}
        if self._ids is not None:
            place = NodeAffinitySchedulingStrategy(next(self._ids), soft=True)
            options["scheduling_strategy"] = place
        return options


def _nodes() -> list[tuple[str, float]]:
    """Return the living nodes of the cluster with their CPUs."""
    import ray

    return [
        (node["NodeID"], node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]
    ]


def _as_table(portion: Chunk) -> Any:
    """Return a portion as one row of bytes, so that types and shapes travel as they are."""
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


def _portions_of(table: Any) -> Iterator[Chunk]:
    """Yield the portions in a table; their arrays are views of it."""
    for head, arrays in zip(table["head"], table["arrays"], strict=True):
        buffers = [array.as_buffer() for array in arrays.values]
        yield pickle.loads(head.as_buffer(), buffers=buffers)  # noqa: S301  as above
