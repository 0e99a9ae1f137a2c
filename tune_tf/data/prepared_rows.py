"""Preparation of records into rows, once per sweep."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested, leaves_of
from tune_tf.data.node_store import is_actor, node_store
from tune_tf.data.preparation import BadRecord, RecordRows, prepare
from tune_tf.errors import (
    RAISED_AT,
    InvalidSettingsError,
    WorkloadError,
    did_you_mean,
    one_of,
)

_log = logging.getLogger(__name__)

OnBadRecord = Literal["raise", "skip"]

_MAX_LISTED = 3


@dataclass(frozen=True, eq=False)
class Prepared:
    """Read-only nested arrays of rows, and which records have a row.

    ``kept`` are the numbers of these records, ascending, int64 of shape ``[rows]``.
    """

    rows: Nested
    kept: "np.ndarray[Any, Any]"
    skipped: tuple[BadRecord, ...] = ()


def prepared(
    records: Sequence[Any],
    fn: Callable[[Any], Nested],
    *,
    on_bad_record: OnBadRecord = "raise",
    version: str = "",
) -> Prepared:
    """Return the rows that a function makes of records, stacked in the records' order.

    Use it in ``Workload.load_data`` for decoding, resizing and parsing. The rows are prepared once
    per node for all trials of a sweep. If it takes long, tasks on all nodes of a connected Ray
    cluster, which reserve no CPUs, share the work with this process.

    Rows are identified by the function (its code, closure, defaults, the global values that it
    names, and the object of a method), the records and ``version``. If these cannot be compared,
    each call repeats the preparation. A function that holds a trial's config counts as reading all
    of it, so pass single values.

    Args:
        records: Arguments of ``fn``, such as paths; must be picklable on a cluster.
        fn: Takes a record and returns its row: an array, a number, or nested dicts or tuples of
            them, of the same shapes and dtypes for all records.
        on_bad_record: ``"raise"`` if ``fn`` raises or a row differs in shape or dtype from the
            first, or ``"skip"`` to leave the record out.
        version: Distinguishes rows of equal records, such as the modification times of files.

    Raises:
        InvalidSettingsError: An argument is invalid.
        WorkloadError: A record is bad, all are, or there are none.
        WorkerError: The preparing processes were lost repeatedly.
    """
    if isinstance(records, str | bytes):
        raise InvalidSettingsError(
            [f"records must be a sequence, not one {type(records).__name__}"]
        )
    if on_bad_record not in (known := get_args(OnBadRecord)):
        text = f"on_bad_record must be {one_of(known)}, not {on_bad_record!r}"
        raise InvalidSettingsError([text + did_you_mean(on_bad_record, known)])
    records, stop_at_failure = list(records), on_bad_record == "raise"
    if not records:
        raise WorkloadError("there are no records to prepare: find out why the list is empty")

    def run() -> Prepared:
        found = prepare(records, fn, stop_at_failure=stop_at_failure)
        return _checked(records, found, stop_at_failure=stop_at_failure)

    key = digest((fn, stop_at_failure, version, records)) if is_actor() else None
    return run() if key is None else node_store().get(f"prepared-{key.hex()}", run)


def _checked(records: list[Any], found: RecordRows, *, stop_at_failure: bool) -> Prepared:
    bad = tuple(found.failures)
    if bad and stop_at_failure:
        error = WorkloadError(
            f"{bad[0]}; fix or remove the record, or skip such records with on_bad_record: skip"
        )
        error.add_note(f"{RAISED_AT}\n{bad[0].trace}")
        raise error
    more = f"; and {len(bad) - _MAX_LISTED} more" if len(bad) > _MAX_LISTED else ""
    listed = "; ".join(map(str, bad[:_MAX_LISTED])) + more
    rows, kept = found.rows, np.array(found.kept)
    if rows is None:
        raise WorkloadError(f"none of the {len(bad)} records can be prepared: {listed}")
    if bad:
        _log.warning("%d of %d records were skipped: %s", len(bad), len(records), listed)
    for _, leaf in leaves_of("", (rows, kept)):
        leaf.flags.writeable = False
    return Prepared(rows, kept, bad)
