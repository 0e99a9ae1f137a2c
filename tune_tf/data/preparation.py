"""Rows that a function makes of records, prepared once per node."""

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested, leaves_of, map_nested, num_bytes, row_of, spec_of
from tune_tf.data.node_store import is_actor, is_connected, node_store
from tune_tf.errors import RAISED_AT, InvalidSettingsError, WorkerLostError, WorkloadError

_BATCH_BYTES = 16 * 2**20
"""Size of the rows of a task: a few images or many numbers, little beside a worker's memory."""
_TASKS_A_CPU = 8

_MAX_RETRIES = 3
"""Retries of records after a lost process; limited, because a record may kill every process."""

_TASKS_READY_S = 3.0
"""Time that the processes of tasks take to start on an idle machine."""

_MAX_FAILURES = 10
"""Bad records that are named before the preparation ends."""

_MAX_CHARACTERS = 500


def prepared(records: Sequence[Any], fn: Callable[[Any], Nested], *, version: str = "") -> Nested:
    """Return the rows that a function makes of records, stacked in the records' order.

    Use it in ``Workload.load_data`` for decoding, resizing and parsing. The rows are prepared once
    per node for all trials of a sweep, and are read-only. If it takes long, tasks on all nodes of a
    connected Ray cluster, which reserve no CPUs, share the work with this process.

    Rows are identified by the function (its code, closure, defaults, the global values that it
    names, and the object of a method), the records and ``version``. If these cannot be compared,
    each call repeats the preparation. A function that holds a trial's config counts as reading all
    of it, so pass single values.

    Args:
        records: Arguments of ``fn``, such as paths; must be picklable on a cluster.
        fn: Takes a record and returns its row: an array, a number, or nested dicts or tuples of
            them, of the same shapes and dtypes for all records.
        version: Distinguishes rows of equal records, such as the modification times of files.

    Raises:
        InvalidSettingsError: The records are a text.
        WorkloadError: ``fn`` raises, or rows differ in shape or dtype: names the first such
            records; or there are no records.
        WorkerLostError: The preparing processes were lost repeatedly.
    """
    if isinstance(records, str | bytes):
        raise InvalidSettingsError(f"records must be a sequence, not one {type(records).__name__}")
    records = list(records)
    if not records:
        raise WorkloadError("there are no records to prepare: find out why the list is empty")
    key = digest((fn, version, records)) if is_actor() else None
    run = partial(_prepare, records, fn)
    return run() if key is None else node_store().get(f"prepared-{key.hex()}", run)


class RecordRows:
    """Rows of records in arrays that are allocated once, and failures of records.

    Args:
        num_records: Number of the records.
        spec: Spec that the rows must have; by default that of the first.

    Attributes:
        failures: What to tell of each record without such a row, and the traceback.
    """

    def __init__(self, num_records: int, spec: Nested = None) -> None:
        self.spec = spec
        self.arrays: Nested = None
        self.failures: list[tuple[str, str]] = []
        self._num_records = num_records

    @property
    def row_bytes(self) -> float:
        """Size of a row, after the first."""
        return num_bytes(self.arrays) / self._num_records

    def make(self, place: int, number: int, record: Any, fn: Callable[[Any], Nested]) -> None:
        """Make the row at a place of the record with a number."""
        try:
            row = row_of(fn(record))
            self.spec = self.spec or spec_of(row)
            if (spec := spec_of(row)) != self.spec:
                raise ValueError(
                    f"its row is {spec}, but that of an earlier record is {self.spec}; all rows "
                    "must have one shape and type"
                )
        except Exception as error:  # noqa: BLE001  any error makes only this record bad
            text = f"record {number} ({str(record)[:_MAX_CHARACTERS]}): "
            trace = "".join(traceback.format_exception(error))
            self.failures.append((f"{text}{type(error).__name__}: {error}", trace))
        else:
            self.put(place, map_nested(lambda leaf: leaf[np.newaxis], row))

    def put(self, start: int, rows: Nested) -> None:
        """Put rows at a place and the next ones."""
        if self.arrays is None:  # memory is used only as the arrays are filled
            self.arrays = map_nested(
                lambda leaf: np.empty((self._num_records, *leaf.shape[1:]), leaf.dtype), rows
            )

        def put(array: Any, new: Any) -> None:
            array[start : start + len(new)] = new

        map_nested(put, self.arrays, rows)

    @property
    def is_hopeless(self) -> bool:
        """Whether so many records are bad that no further one is tried."""
        return len(self.failures) >= _MAX_FAILURES


def _prepare(records: list[Any], fn: Callable[[Any], Nested]) -> Nested:
    """Return the rows of records.

    This process starts alone, and hands over to tasks on the connected Ray cluster if the rest
    takes longer than starting them.
    """
    rows = RecordRows(len(records))
    for number, record in enumerate(records):
        if number == 1:
            began = time.monotonic()  # the first record imports modules
        if number > 1 and rows.arrays is not None and is_connected():
            record_s = (time.monotonic() - began) / (number - 1)
            if record_s * (len(records) - number) >= _TASKS_READY_S:
                _prepare_by_tasks(rows, number, records, fn)
                break
        rows.make(number, number, record, fn)
        if rows.is_hopeless:
            break
    if rows.failures:
        listed = "; ".join(text for text, _ in rows.failures)
        more = ", and maybe more" if rows.is_hopeless else ""
        error = WorkloadError(f"{listed}{more}: fix these records, or leave them out of the list")
        error.add_note(f"{RAISED_AT}\n{rows.failures[0][1]}")
        raise error
    for _, leaf in leaves_of("", rows.arrays):
        leaf.flags.writeable = False
    return rows.arrays


def _prepare_by_tasks(
    rows: RecordRows, start: int, records: list[Any], fn: Callable[[Any], Nested]
) -> None:
    """Make the rows of the records from ``start`` on.

    Tasks reserve no CPUs, because the trials that wait for the rows have often reserved all.
    """
    import ray

    num_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    share = (len(records) - start) // (num_cpus * _TASKS_A_CPU)
    size = max(1, min(share, int(_BATCH_BYTES // max(rows.row_bytes, 1))))
    task = ray.remote(num_cpus=0, max_retries=_MAX_RETRIES, scheduling_strategy="SPREAD")(_task)
    packed = [ray.put(fn)]  # unpacked by the task: that of an argument may import TensorFlow
    firsts = range(start, len(records), size)
    tasks = (
        task.remote(packed, digest(fn), rows.spec, first, records[first : first + size])
        for first in firsts
    )
    running = deque[Any](islice(tasks, num_cpus))
    try:
        for first in firsts:
            made: RecordRows = ray.get(running.popleft())
            running.extend(islice(tasks, 1))
            rows.failures += made.failures
            if made.arrays is not None:
                rows.put(first, made.arrays)
            if rows.is_hopeless:
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
    packed: list[Any], known: bytes | None, spec: Nested, start: int, records: list[Any]
) -> RecordRows:
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
    rows = RecordRows(len(records), spec)
    for place, record in enumerate(records):
        rows.make(place, start + place, record, fn)
        if rows.is_hopeless:
            break
    return rows
