"""Chunks of consecutive records: their rows and failures, and their assembly."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, format_spec, map_nested, num_bytes, row_of, spec_of, stacked

_MAX_BYTES = 16 * 2**20
"""Size of the rows of a chunk: a few images or many numbers, little beside a worker's memory."""


@dataclass(frozen=True, eq=False)
class RowRun:
    """Consecutive rows of the same form.

    Args:
        numbers: Numbers of their records, ascending, shape ``[rows]``.
        rows: Nested arrays with rows on the first axis.
    """

    numbers: "np.ndarray[Any, Any]"
    form: Nested
    rows: Nested


@dataclass(frozen=True)
class RecordFailure:
    """Reason that a record has no row.

    Args:
        error: ``"Type: message"``.
        trace: Traceback; empty if it is not needed.
    """

    index: int
    error: str
    trace: str = ""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows and failures of consecutive records, in the records' order."""

    runs: tuple[RowRun, ...]
    failures: tuple[RecordFailure, ...]

    @property
    def last(self) -> int:
        """Number of the last record, or 0."""
        numbers = [int(run.numbers[-1]) for run in self.runs]
        return max([*numbers, *(failure.index for failure in self.failures)], default=0)


def chunks(
    first: int,
    records: Iterable[Any],
    fn: Callable[[Any], Nested],
    *,
    stop_at_failure: bool,
    max_bytes: int = _MAX_BYTES,
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
        else:
            draft.add(number, row)
        if draft.num_bytes >= max_bytes:
            yield draft.chunk()
            draft = _ChunkDraft()
    yield draft.chunk()


class _ChunkDraft:
    def __init__(self) -> None:
        self.failures: list[RecordFailure] = []
        self.num_bytes = 0
        self._runs: list[RowRun] = []
        self._numbers: list[int] = []
        self._rows: list[Nested] = []
        self._form: Nested = None

    def add(self, number: int, row: Nested) -> None:
        form = spec_of(row)
        if form != self._form:
            self._end_run()
            self._form = form
        self._numbers.append(number)
        self._rows.append(row)
        self.num_bytes += num_bytes(row)

    def chunk(self) -> Chunk:
        self._end_run()
        return Chunk(tuple(self._runs), tuple(self.failures))

    def _end_run(self) -> None:
        if self._rows:
            numbers = np.array(self._numbers, np.int64)
            self._runs.append(RowRun(numbers, self._form, stacked(self._rows)))
        self._numbers, self._rows = [], []


@dataclass(frozen=True, eq=False)
class AssembledRows:
    """Rows and failures of all records, or of those up to the first failure.

    Args:
        rows: Nested arrays with rows on the first axis; None if no record has a row.
        kept: Numbers of the records that have a row, ascending, shape ``[rows]``.
    """

    rows: Nested | None
    kept: "np.ndarray[Any, Any]"
    failures: tuple[RecordFailure, ...]


def assemble(stream: Iterable[Chunk], num_records: int, *, stop_at_failure: bool) -> AssembledRows:
    """Copy chunks, in the order of their records, into arrays allocated once for all rows.

    A row that differs in form from the first counts as a failure.
    """
    assembly = _Assembly(num_records)
    for chunk in stream:
        assembly.add(chunk)
        if stop_at_failure and assembly.failures:
            break
    return assembly.assembled()


class _Assembly:
    def __init__(self, num_records: int) -> None:
        self.failures: list[RecordFailure] = []
        self._kept = np.empty(num_records, np.int64)
        self._count = 0
        self._form: Nested = None
        self._rows: Nested = None

    def add(self, chunk: Chunk) -> None:
        self.failures += chunk.failures
        for run in chunk.runs:
            if self._form is None:
                self._form = run.form
                self._rows = map_nested(self._allocated, run.form)
            if run.form != self._form:
                self.failures += self._unlike(run)
                continue
            end = self._count + len(run.numbers)
            self._kept[self._count : end] = run.numbers
            map_nested(self._fill, self._rows, run.rows)
            self._count = end

    def assembled(self) -> AssembledRows:
        count = self._count
        rows = None if self._form is None else map_nested(lambda leaf: leaf[:count], self._rows)
        failures = sorted(self.failures, key=lambda failure: failure.index)
        return AssembledRows(rows, self._kept[:count], tuple(failures))

    def _allocated(self, form: Any) -> "np.ndarray[Any, Any]":
        """Allocate the rows of all records; memory is used only as they are filled."""
        return np.empty((len(self._kept), *form.shape), form.dtype)

    def _fill(self, leaf: Any, rows: Any) -> None:
        leaf[self._count : self._count + len(rows)] = rows

    def _unlike(self, run: RowRun) -> list[RecordFailure]:
        error = (
            f"ValueError: its row is {format_spec(run.form)}, but the row of record "
            f"{self._kept[0]} is {format_spec(self._form)}; all rows must have one shape and type"
        )
        return [RecordFailure(int(number), error) for number in run.numbers]
