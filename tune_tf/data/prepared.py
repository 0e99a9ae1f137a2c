"""Records turned into rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tune_tf.errors import WorkloadError


@dataclass(frozen=True)
class BadRecord:
    """A record that gave no row.

    Args:
        index: Its number, from 0.
        record: Its text.
        error: Type and message of what went wrong.
    """

    index: int
    record: str
    error: str


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows of records.

    Args:
        rows: Nested arrays, rows on the first axis.
        kept: Numbers of the records that they are of, int64.
        skipped: The others.
    """

    rows: Any
    kept: "np.ndarray[Any, Any]"
    skipped: tuple[BadRecord, ...] = ()


def prepared(
    records: Sequence[Any],
    fn: Callable[[Any], Any],
    *,
    on_bad_record: Literal["raise", "skip"] = "raise",
    version: str = "",
) -> Prepared:
    """Return what ``fn`` makes of each record, stacked.

    Raises:
        WorkloadError: A record gives no row, or all are skipped.
    """
    rows, kept, skipped = [], [], []
    for index, record in enumerate(records):
        try:
            rows.append(fn(record))
        except Exception as error:
            bad = BadRecord(index, str(record), f"{type(error).__name__}: {error}")
            if on_bad_record == "raise":
                raise WorkloadError(
                    f"record {index} ({bad.record}) gives no row: {bad.error}"
                ) from error
            skipped.append(bad)
        else:
            kept.append(index)
    if not rows:
        raise WorkloadError(f"none of the {len(records)} records gives a row")
    return Prepared(np.stack(rows), np.array(kept, np.int64), tuple(skipped))
