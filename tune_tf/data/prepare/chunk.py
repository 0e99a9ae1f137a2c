"""Chunks of consecutive records: their rows and failures."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, leaves_of
from tune_tf.data.prepare.row_form import form_of, row_of, stacked

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
            yield draft.portion()
            draft = _ChunkDraft()
    yield draft.portion()


class _ChunkDraft:
    def __init__(self) -> None:
        self.failures: list[RecordFailure] = []
        self.num_bytes = 0
        self._runs: list[RowRun] = []
        self._numbers: list[int] = []
        self._rows: list[Nested] = []
        self._form: Nested = None

    def add(self, number: int, row: Nested) -> None:
        form = form_of(row)
        if form != self._form:
            self._end_run()
            self._form = form
        self._numbers.append(number)
        self._rows.append(row)
        self.num_bytes += sum(leaf.nbytes for _, leaf in leaves_of("", row))

    def portion(self) -> Chunk:
        self._end_run()
        return Chunk(tuple(self._runs), tuple(self.failures))

    def _end_run(self) -> None:
        if self._rows:
            numbers = np.array(self._numbers, np.int64)
            self._runs.append(RowRun(numbers, self._form, stacked(self._rows)))
        self._numbers, self._rows = [], []


@dataclass(frozen=True)
class BadRecord:
    """Record without a row, or with a row unlike the others.

    Args:
        index: Number of the record, from 0.
        record: ``str`` of the record, such as a path, truncated if long.
        error: ``"Type: message"``.
    """

    index: int
    record: str
    error: str

    def __str__(self) -> str:
        """Return ``record 3 (images/a.jpg): OSError: cannot identify image file``."""
        return f"record {self.index} ({self.record}): {self.error}"
