"""Preparation of records into rows, once per sweep."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tune_tf.data.nested import Nested, leaves_of
from tune_tf.data.prepare.assemble import AssembledRows, assemble
from tune_tf.data.prepare.chunk import BadRecord
from tune_tf.data.prepare.preparation import ChangedFunctionError, Preparation
from tune_tf.data.prepare.prepare_actor import gathered_on_cluster
from tune_tf.errors import (
    RAISED_AT,
    ErrorDetail,
    InvalidSettingsError,
    WorkloadError,
    did_you_mean,
    one_of,
)

_log = logging.getLogger(__name__)

OnBadRecord = Literal["raise", "skip"]

_MAX_LISTED = 3
_MAX_CHARACTERS = 500


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows of some records.

    Args:
        rows: Nested dicts and tuples of read-only arrays, or one; rows are on the first axis.
        kept: Numbers of the records that the rows are of, ascending, int64 of shape ``[rows]``.
        skipped: The records that have no row, in their order.
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

    It is meant for ``Workload.load_data``, for what costs time once: decoding, resizing, parsing.
    On a connected Ray cluster each content is prepared once, by processes on all nodes, and lies
    in the object store for all trials, whose arrays are views of it. Those who ask while it is
    being prepared wait for it. The processes reserve no CPUs, as trials that wait have often
    reserved all. Without a cluster the records are taken one after another in this process.

    A content is what the function, the records and ``version`` say; of the function that is its
    code, what it closes over, its defaults and the global values that it names, of a method its
    object too. What cannot be compared is prepared anew. A function that takes a trial's config
    along counts as reading all of it: let it take single values. A content is kept as long as a
    process that asked for it is there, and some minutes longer.

    Args:
        records: What ``fn`` takes, such as paths; must be picklable on a cluster.
        fn: Takes a record; returns its row: an array, a number, or nested dicts or tuples of them,
            of the same shapes and types for all records. It should depend on its record only.
        on_bad_record: What to do where ``fn`` raises, or a row has another shape or type than the
            first: ``"raise"``, or ``"skip"`` to leave the record out and go on.
        version: Tells contents apart that the records do not, such as the sizes and times of
            change of files.

    Returns:
        The rows, the numbers of their records, and the records that have none.

    Raises:
        InvalidSettingsError: An argument is not as described.
        WorkloadError: A record is bad, or all are, or there are none; or the function or a record
            cannot be pickled.
        WorkerError: The processes that prepare were lost again and again.
    """
    preparation = _preparation(records, fn, on_bad_record, version)
    try:
        if _is_connected():
            return _judged(preparation, *gathered_on_cluster(preparation))
    except ChangedFunctionError:
        _log.warning(
            "the records are prepared in this process alone: the module of %s was changed since it "
            "was imported, its file or a global value, which no other process sees; hand over such "
            "values by functools.partial",
            getattr(fn, "__qualname__", fn),
        )
    return _judged(preparation, _gathered_here(preparation), True)


def _preparation(
    records: Sequence[Any], fn: Callable[[Any], Nested], on_bad_record: str, version: str
) -> Preparation:
    errors = []
    if isinstance(records, str | bytes):
        errors.append(
            ErrorDetail("records", f"must be several records, not one {type(records).__name__}")
        )
    if not callable(fn):
        errors.append(ErrorDetail("fn", f"must be a function of a record, not {type(fn).__name__}"))
    if on_bad_record not in (known := get_args(OnBadRecord)):
        text = f"{on_bad_record!r} is unknown: use {one_of(known)}"
        errors.append(ErrorDetail("on_bad_record", text + did_you_mean(on_bad_record, known)))
    if not isinstance(version, str):
        errors.append(ErrorDetail("version", f"must be a text, not {type(version).__name__}"))
    if errors:
        raise InvalidSettingsError(errors)
    if not len(records):
        raise WorkloadError("there are no records to prepare: look for why the list is empty")
    return Preparation(list(records), fn, on_bad_record == "raise", version)


def _is_connected() -> bool:
    ray = sys.modules.get("ray")  # who did not load it is not connected, and need not wait for it
    return ray is not None and ray.is_initialized()


def _gathered_here(preparation: Preparation) -> AssembledRows:
    found = assemble(
        preparation.here(),
        len(preparation.records),
        stop_at_failure=preparation.stop_at_failure,
    )
    if found.rows is not None:
        for _, leaf in leaves_of("", (found.rows, found.kept)):
            leaf.flags.writeable = False  # as on a cluster
    return found


def _judged(preparation: Preparation, found: AssembledRows, began: bool) -> Prepared:
    """Return the rows, or raise what the bad records call for."""
    bad = tuple(
        BadRecord(failure.index, _format_record(preparation.records[failure.index]), failure.error)
        for failure in found.failures
    )
    if bad and preparation.stop_at_failure:
        error = WorkloadError(
            f"{bad[0]}; mend the record or leave it away, or go on without such records by "
            "on_bad_record: skip"
        )
        if found.failures[0].trace:
            error.add_note(f"{RAISED_AT}\n{found.failures[0].trace}")
        raise error
    if found.rows is None:
        raise WorkloadError(f"none of the {len(bad)} records can be prepared: {_first(bad)}")
    if bad and began:
        total = len(preparation.records)
        _log.warning("%d of %d records were skipped: %s", len(bad), total, _first(bad))
    return Prepared(found.rows, found.kept, bad)


def _first(bad: tuple[BadRecord, ...]) -> str:
    more = [f"and {len(bad) - _MAX_LISTED} more"] if len(bad) > _MAX_LISTED else []
    return "; ".join([*map(str, bad[:_MAX_LISTED]), *more])


def _format_record(record: Any) -> str:
    text = str(record)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
