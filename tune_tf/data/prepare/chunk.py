"""Chunks of consecutive records: their rows and failures, and their assembly."""

import mmap
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tune_tf.data.nested import (
    Nested,
    format_spec,
    leaves_of,
    map_nested,
    num_bytes,
    row_of,
    spec_of,
    stacked,
)

CHUNK_BYTES = 16 * 2**20
"""Size of the rows of a chunk: a few images or many numbers, little beside a worker's memory."""


@dataclass(frozen=True)
class RecordFailure:
    """Reason, as ``"Type: message"``, that a record has no row; the traceback if it is needed."""

    index: int
    error: str
    trace: str = ""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of one spec, with the numbers of their records, and failures of consecutive records."""

    numbers: list[int]
    rows: Nested  # None if there are none
    spec: Nested
    failures: list[RecordFailure]

    @property
    def last(self) -> int:
        """Number of the last record, or 0."""
        return max([*self.numbers, *(failure.index for failure in self.failures)], default=0)


def chunks(
    first: int,
    records: Iterable[Any],
    fn: Callable[[Any], Nested],
    *,
    stop_at_failure: bool,
    max_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Prepare records in order and yield them in chunks of about ``max_bytes`` of rows.

    Records are numbered from ``first``.
    """
    draft = _ChunkDraft()
    for number, record in enumerate(records, first):
        try:
            row = row_of(fn(record))
        except Exception as error:  # noqa: BLE001  any error makes only this record bad
            trace = "".join(traceback.format_exception(error)) if stop_at_failure else ""
            draft.failures.append(RecordFailure(number, f"{type(error).__name__}: {error}", trace))
            if stop_at_failure:
                break
            continue
        spec = spec_of(row)
        if draft.rows and (spec != draft.spec or draft.num_bytes >= max_bytes):
            yield draft.chunk()
            draft = _ChunkDraft()
        draft.spec = spec
        draft.numbers.append(number)
        draft.rows.append(row)
        draft.num_bytes += num_bytes(row)
    yield draft.chunk()


@dataclass
class _ChunkDraft:
    numbers: list[int] = field(default_factory=list)
    rows: list[Nested] = field(default_factory=list)
    spec: Nested = None
    failures: list[RecordFailure] = field(default_factory=list)
    num_bytes: int = 0

    def chunk(self) -> Chunk:
        rows = stacked(self.rows) if self.rows else None
        return Chunk(self.numbers, rows, self.spec, self.failures)


@dataclass(frozen=True, eq=False)
class AssembledRows:
    """Rows, numbers of their records, and failures of all records or those up to the first."""

    rows: Nested | None  # None if no record has a row
    kept: "np.ndarray[Any, Any]"
    failures: tuple[RecordFailure, ...]


def assemble(
    stream: Iterable[Chunk],
    num_records: int,
    *,
    stop_at_failure: bool,
    max_memory: float = float("inf"),
) -> AssembledRows:
    """Copy chunks, in the order of their records, into arrays allocated once for all rows.

    A row that differs in spec from the first counts as a failure. Rows of more than ``max_memory``
    bytes are written to a temporary file.

    Raises:
        OSError: The disk has no space for them.
    """
    kept = np.empty(num_records, np.int64)
    spec: Nested = None
    rows: Nested = None
    failures: list[RecordFailure] = []
    end = 0
    for chunk in stream:
        failures += chunk.failures
        if chunk.numbers and spec is None:
            spec = chunk.spec
            rows = _allocate(chunk.rows, num_records, max_memory)
        if chunk.numbers and chunk.spec != spec:
            error = (
                f"ValueError: its row is {format_spec(chunk.spec)}, but the row of record "
                f"{kept[0]} is {format_spec(spec)}; all rows must have one shape and type"
            )
            failures += [RecordFailure(number, error) for number in chunk.numbers]
        elif chunk.numbers:
            start, end = end, end + len(chunk.numbers)
            kept[start:end] = chunk.numbers
            _fill(rows, chunk.rows, start, end)
        if stop_at_failure and failures:
            break
    failures.sort(key=lambda failure: failure.index)
    rows = None if spec is None else map_nested(lambda leaf: leaf[:end], rows)
    return AssembledRows(rows, kept[:end], tuple(failures))


def _allocate(chunk_rows: Nested, num_records: int, max_memory: float) -> Nested:
    num_in_chunk = max(len(leaf) for _, leaf in leaves_of("", chunk_rows))
    in_file = num_bytes(chunk_rows) / num_in_chunk * num_records > max_memory

    def array(leaf: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        shape, size = (num_records, *leaf.shape[1:]), leaf[:1].nbytes * num_records
        # Memory is used only as the array is filled.
        return np.ndarray(shape, leaf.dtype, _file_memory(size) if in_file and size else None)

    return map_nested(array, chunk_rows)


def _file_memory(size: int) -> mmap.mmap:
    """Return the memory of a new file without a name, which the system writes out when short."""
    with tempfile.TemporaryFile(prefix="tune_tf-rows-", dir=os.environ.get("RAY_TMPDIR")) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # on a full disk, writing would end the process
        return mmap.mmap(file.fileno(), size)


def _fill(rows: Nested, chunk_rows: Nested, start: int, end: int) -> None:
    def fill(leaf: Any, chunk_leaf: Any) -> None:
        leaf[start:end] = chunk_leaf

    map_nested(fill, rows, chunk_rows)
