"""Assembly of chunks into the rows of all records."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, map_nested
from tune_tf.data.prepare.chunk import Chunk, RecordFailure, RowRun
from tune_tf.data.prepare.row_form import allocate_rows, fill, format_form


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
    whole = _Whole(num_records)
    for portion in stream:
        whole.add(portion)
        if stop_at_failure and whole.failures:
            break
    return whole.gathered()


class _Whole:
    def __init__(self, num_records: int) -> None:
        self.failures: list[RecordFailure] = []
        self._kept = np.empty(num_records, np.int64)
        self._count = 0
        self._form: Nested = None
        self._room: Nested = None

    def add(self, portion: Chunk) -> None:
        self.failures += portion.failures
        for run in portion.runs:
            if self._form is None:
                self._form = run.form
                self._room = allocate_rows(len(self._kept), run.form)
            if run.form != self._form:
                self.failures += self._unlike(run)
                continue
            end = self._count + len(run.numbers)
            self._kept[self._count : end] = run.numbers
            fill(self._room, self._count, run.rows)
            self._count = end

    def gathered(self) -> AssembledRows:
        count = self._count
        rows = None if self._form is None else map_nested(lambda leaf: leaf[:count], self._room)
        failures = sorted(self.failures, key=lambda failure: failure.index)
        return AssembledRows(rows, self._kept[:count], tuple(failures))

    def _unlike(self, run: RowRun) -> list[RecordFailure]:
        error = (
            f"ValueError: its row is {format_form(run.form)}, but the row of record "
            f"{self._kept[0]} is {format_form(self._form)}; all rows must have one shape and type"
        )
        return [RecordFailure(int(number), error) for number in run.numbers]
