"""A record that could not be prepared."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, leaves_of
from tune_tf.data.prepare.row_form import form_of, row_of, stacked

_MAX_BYTES = 16 * 2**20
"""Rows in one portion: a few images or many numbers, small beside a worker's own memory."""


@dataclass(frozen=True, eq=False)
class RowRun:
    """Rows of one form, one after another.

    Args:
        numbers: Of their records, ascending, shape ``[rows]``.
        form: Of each row.
        rows: Nested arrays with rows on the first axis.
    """

    numbers: "np.ndarray[Any, Any]"
    form: Nested
    rows: Nested


@dataclass(frozen=True)
class RecordFailure:
    """Why a record has no row.

    Args:
        index: Number of the record.
        error: ``"Type: message"``.
        trace: Where it was raised; empty where nobody will read it.
    """

    index: int
    error: str
    trace: str = ""


@dataclass(frozen=True, eq=False)
class Chunk:
    """What came of some consecutive records.

    Args:
        runs: Rows, in the order of their records.
        failures: Records without one, in their order.
    """

    runs: tuple[RowRun, ...]
    failures: tuple[RecordFailure, ...]

    @property
    def last(self) -> int:
        """Number of the last record in it, or 0."""
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
    """Try records one after another and yield what came of them, a portion at a time.

    Args:
        first: Number of the first of the records.
        records: What ``fn`` takes.
        fn: Gives the row of a record.
        stop_at_failure: Whether records after one that failed are left untried.
        max_bytes: Size of the rows at which a portion is full.
    """
    draft = _Draft()
    for number, record in enumerate(records, first):
        try:
            row = row_of(fn(record))
        except Exception as error:  # noqa: BLE001  whatever it is, only this record is bad
            trace = "".join(traceback.format_exception(error)) if stop_at_failure else ""
            draft.failures.append(RecordFailure(number, f"{type(error).__name__}: {error}", trace))
            if stop_at_failure:
                break
        else:
            draft.add(number, row)
        if draft.num_bytes >= max_bytes:
            yield draft.portion()
            draft = _Draft()
    yield draft.portion()


class _Draft:
    """A portion that is being made."""

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
    """A record that gives no row, or one unlike the others.

    Args:
        index: Number of the record, from 0.
        record: Its ``str``, such as a path; long ones are cut.
        error: What went wrong, ``"Type: message"``.
    """

    index: int
    record: str
    error: str

    def __str__(self) -> str:
        """Return ``record 3 (images/a.jpg): OSError: cannot identify image file``."""
        return f"record {self.index} ({self.record}): {self.error}"
