"""Preparation of records in this process, and by tasks on the cluster if it takes long."""

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested, map_nested, num_bytes, row_of, spec_of
from tune_tf.data.node_store import is_connected
from tune_tf.errors import WorkerLostError, WorkloadError

_BATCH_BYTES = 16 * 2**20
"""Size of the rows of a batch: a few images or many numbers, little beside a worker's memory."""
_MAX_BATCH = 1024  # records
_BATCHES_A_CPU = 8

_MAX_RETRIES = 3
"""Retries of records after a lost process; limited, because a record may kill every process."""

_TASKS_READY_S = 3.0
"""Time that the processes of tasks take to start on an idle machine."""

_MAX_CHARACTERS = 500

_Batch = tuple[list[int], Nested, "list[BadRecord]"]
"""Numbers of records, their rows, and other records."""


@dataclass(frozen=True)
class BadRecord:
    """Record without a row, or with a row unlike the others.

    ``index`` is its number from 0, ``record`` its text, such as a path, truncated if long.
    """

    index: int
    record: str
    error: str
    trace: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        """Return ``record 3 (images/a.jpg): OSError: cannot identify image file``."""
        return f"record {self.index} ({self.record}): {self.error}"


class RecordRows:
    """Rows of records, in arrays that are allocated once, and failures of records without a row.

    A row that differs in spec from the ``first``, a record's number and spec, is a failure.
    """

    def __init__(self, num_records: int, first: tuple[int, Nested] | None = None) -> None:
        self.first = first
        self.kept: list[int] = []  # numbers of the records that have a row
        self.failures: list[BadRecord] = []
        self._num_records = num_records
        self._arrays: Nested = None

    @property
    def rows(self) -> Nested:
        """The rows; None if no record has one."""
        if not self.kept:
            return None
        return map_nested(lambda array: array[: len(self.kept)], self._arrays)

    @property
    def row_bytes(self) -> float:
        """Size of a row, after the first."""
        return num_bytes(self._arrays) / self._num_records

    def make(self, number: int, record: Any, fn: Callable[[Any], Nested]) -> None:
        """Make the row of the next record."""
        try:
            row = row_of(fn(record))
            self.first = self.first or (number, spec_of(row))
            if (spec := spec_of(row)) != self.first[1]:
                raise ValueError(
                    f"its row is {spec}, but the row of record {self.first[0]} is "
                    f"{self.first[1]}; all rows must have one shape and type"
                )
        except Exception as error:  # noqa: BLE001  any error makes only this record bad
            trace = "".join(traceback.format_exception(error))
            text = str(record)[:_MAX_CHARACTERS]
            bad = BadRecord(number, text, f"{type(error).__name__}: {error}", trace)
            self.failures.append(bad)
            return
        self.add(([number], map_nested(lambda leaf: leaf[np.newaxis], row), []))

    def add(self, batch: _Batch) -> None:
        """Add the rows and failures of the next records."""
        kept, rows, failures = batch
        self.failures += failures
        if not kept:
            return
        if self._arrays is None:  # memory is used only as the arrays are filled
            self._arrays = map_nested(
                lambda leaf: np.empty((self._num_records, *leaf.shape[1:]), leaf.dtype), rows
            )
        start, end = len(self.kept), len(self.kept) + len(kept)
        map_nested(lambda array, new: array.__setitem__(slice(start, end), new), self._arrays, rows)
        self.kept += kept


def prepare(
    records: list[Any], fn: Callable[[Any], Nested], *, stop_at_failure: bool
) -> RecordRows:
    """Return the rows that a function makes of records.

    This process starts alone, and hands over to tasks on the connected Ray cluster if the rest
    takes longer than starting them.

    Raises:
        WorkloadError: The function is another one in the processes of tasks.
        WorkerLostError: The processes of tasks were lost repeatedly over the same records.
    """
    rows = RecordRows(len(records))
    for number, record in enumerate(records):
        if number == 1:
            began = time.monotonic()  # the first record imports modules
        if number > 1 and rows.first is not None and is_connected():
            record_s = (time.monotonic() - began) / (number - 1)
            if record_s * (len(records) - number) >= _TASKS_READY_S:
                _prepare_by_tasks(rows, number, records, fn, stop_at_failure)
                break
        rows.make(number, record, fn)
        if stop_at_failure and rows.failures:
            break
    return rows


def _prepare_by_tasks(
    rows: RecordRows, start: int, records: list[Any], fn: Callable[[Any], Nested], stop: bool
) -> None:
    """Add the rows of the records from ``start`` on, in their order.

    Tasks reserve no CPUs, because the trials that wait for the rows have often reserved all.
    """
    import ray

    num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = int(min(_MAX_BATCH, _BATCH_BYTES // max(rows.row_bytes, 1)))
    size = max(1, min(size, (len(records) - start) // (num_cpus * _BATCHES_A_CPU)))
    task = ray.remote(num_cpus=0, max_retries=_MAX_RETRIES, scheduling_strategy="SPREAD")(_task)
    packed = [ray.put(fn)]  # unpacked by the task: that of an argument may import TensorFlow
    firsts = range(start, len(records), size)
    batches = (
        task.remote(packed, digest(fn), rows.first, first, records[first : first + size], stop)
        for first in firsts
    )
    running = deque[Any](islice(batches, num_cpus))
    try:
        for first in firsts:  # noqa: B007  told below
            rows.add(ray.get(running.popleft()))
            running.extend(islice(batches, 1))
            if stop and rows.failures:
                return
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise WorkerLostError(
            f"the process that prepares record {first} or one of the next ones was lost "
            f"{1 + _MAX_RETRIES} times: call the function for them in a separate process to see "
            f"what ends it, such as a crash in a library or too little memory ({error})"
        ) from error
    finally:
        for each in running:
            ray.cancel(each)


def _task(
    packed: list[Any], known: bytes | None, first: Any, start: int, records: list[Any], stop: bool
) -> _Batch:
    """Return the rows of some records."""
    import ray

    # TensorFlow would take the trials' GPU memory for decoding images.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    fn = ray.get(packed[0])
    if known is not None and digest(fn) != known:
        raise WorkloadError(
            f"{fn!r} is another function in this process: its module (its file or a global value) "
            "was changed after its import, which no other process sees; pass such values with "
            "functools.partial"
        )
    rows = RecordRows(len(records), first)
    for number, record in enumerate(records, start):
        rows.make(number, record, fn)
        if stop and rows.failures:
            break
    return rows.kept, rows.rows, rows.failures
