"""Rows of consecutive records: made in chunks, and assembled in arrays."""

import mmap
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tune_tf.data.nested import (
    Nested,
    format_spec,
    map_nested,
    num_bytes,
    row_of,
    spec_of,
    stacked,
)


@dataclass(frozen=True)
class RecordFailure:
    """Reason, as ``"Type: message"``, that a record has no row, and the traceback."""

    index: int
    error: str
    trace: str = ""


@dataclass
class Chunk:
    """Rows of one spec, with the numbers of their records, and failures of other records."""

    spec: Nested = None
    numbers: list[int] = field(default_factory=list)
    rows: Any = field(default_factory=list)  # a list of rows; once it is complete, nested arrays
    failures: list[RecordFailure] = field(default_factory=list)


def chunks_of(
    first: int, records: Iterable[Any], fn: Callable[[Any], Nested], *, stop_at_failure: bool
) -> list[Chunk]:
    """Return the rows that a function makes of records, which are numbered from ``first``."""
    chunks = [Chunk()]
    for number, record in enumerate(records, first):
        try:
            row = row_of(fn(record))
        except Exception as error:  # noqa: BLE001  any error makes only this record bad
            trace = "".join(traceback.format_exception(error)) if stop_at_failure else ""
            failure = RecordFailure(number, f"{type(error).__name__}: {error}", trace)
            chunks[-1].failures.append(failure)
            if stop_at_failure:
                break
            continue
        spec = spec_of(row)
        if chunks[-1].rows and spec != chunks[-1].spec:
            chunks.append(Chunk())
        chunks[-1].spec = spec
        chunks[-1].numbers.append(number)
        chunks[-1].rows.append(row)
    for chunk in chunks:
        chunk.rows = stacked(chunk.rows) if chunk.rows else None
    return chunks


class AssembledRows:
    """Rows copied from chunks, in their order, into arrays allocated once for all.

    A row that differs in spec from the first counts as a failure. Rows of more than ``max_memory``
    bytes are written to a temporary file without a name.
    """

    def __init__(self, num_records: int, max_memory: float = float("inf")) -> None:
        self._kept = np.empty(num_records, np.int64)
        self._max_memory = max_memory
        self._spec: Nested = None
        self._rows: Nested = None
        self._end = 0
        self._failures: list[RecordFailure] = []

    @property
    def failures(self) -> list[RecordFailure]:
        """Failures in the order of the records."""
        return sorted(self._failures, key=lambda failure: failure.index)

    @property
    def row_bytes(self) -> float:
        """Size of a row, or 0 before the first."""
        return num_bytes(self._rows) / len(self._kept) if self._spec is not None else 0.0

    @property
    def kept(self) -> "np.ndarray[Any, Any]":
        """Numbers of the records that have a row."""
        return self._kept[: self._end]

    @property
    def rows(self) -> Nested | None:
        """The rows; None if no record has one."""
        if self._spec is None:
            return None
        return map_nested(lambda leaf: leaf[: self._end], self._rows)

    def add(self, chunk: Chunk) -> None:
        """Add the next rows.

        Raises:
            OSError: The disk has no space for all rows.
        """
        self._failures += chunk.failures
        if not chunk.numbers:
            return
        if self._spec is None:
            self._spec, self._rows = chunk.spec, self._allocated(chunk)
        if chunk.spec != self._spec:
            error = (
                f"ValueError: its row is {format_spec(chunk.spec)}, but the row of record "
                f"{self._kept[0]} is {format_spec(self._spec)}; all rows must have one shape and "
                "type"
            )
            self._failures += [RecordFailure(number, error) for number in chunk.numbers]
            return
        start, self._end = self._end, self._end + len(chunk.numbers)
        self._kept[start : self._end] = chunk.numbers
        map_nested(lambda leaf, new: _fill(leaf[start : self._end], new), self._rows, chunk.rows)

    def _allocated(self, chunk: Chunk) -> Nested:
        num_records = len(self._kept)
        in_file = num_bytes(chunk.rows) / len(chunk.numbers) * num_records > self._max_memory

        def array(leaf: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
            shape, size = (num_records, *leaf.shape[1:]), leaf[:1].nbytes * num_records
            # Memory is used only as the array is filled.
            return np.ndarray(shape, leaf.dtype, _file_memory(size) if in_file and size else None)

        return map_nested(array, chunk.rows)


def _fill(leaf: Any, new: Any) -> None:
    leaf[...] = new


def _file_memory(size: int) -> mmap.mmap:
    """Return the memory of a new file without a name, which the system writes out when short."""
    with tempfile.TemporaryFile(prefix="tune_tf-rows-", dir=os.environ.get("RAY_TMPDIR")) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # on a full disk, writing would end the process
        return mmap.mmap(file.fileno(), size)
