"""Date columns of a table: recognition of their format, and the numbers that a model gets."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workloads.column_model import ISO_DATES, MONTH, NO_DATE, unix_times_of

if TYPE_CHECKING:
    import pandas as pd

_DATE = re.compile(
    r"\s*(\d{1,4}([-./])\d{1,2}\2\d{1,4}"
    rf"|\d{{1,2}}([ -]){MONTH}\3([12]\d)?\d\d|{MONTH} \d{{1,2}},? [12]\d{{3}})"
    r"([T ]\d{1,2}:\d\d\S*(\s?[+-][\d:]+|\sUTC)?)?\s*"
)
_FIGURES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d")
_NAMES = ("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%b %d %Y")
_DAYS = (*_FIGURES, *_NAMES)
_TIMES = ("", " %H:%M", " %H:%M:%S")
_FORMATS = (ISO_DATES, *(day + time for day in _DAYS for time in _TIMES))

_PERIODS = {"time of day": 1.0, "weekday": 7.0, "time of year": 365.2425}
"""Length in days of the periods whose sine and cosine are numbers of a date."""


def looks_like_dates(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds datetimes, or texts that all look like dates of a day."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(column):
        return True
    values = column.dropna()
    if types.is_numeric_dtype(values) or not len(values):
        return False
    return bool(values.astype(object).map(lambda value: bool(_DATE.fullmatch(str(value)))).all())


def date_formats_of(column: "pd.Series[Any]") -> list[str]:
    """Return the known formats that all values of a column have."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        return [ISO_DATES]
    texts = pd.Series(column.dropna().astype(object).map(str).unique(), dtype=object)
    fitting = []
    for date_format in _FORMATS:
        if date_format == ISO_DATES and not texts.str.match(r"\d{4}-\d\d-\d\d").all():
            continue
        if _are_dates(texts[:1], date_format) and _are_dates(texts, date_format):
            fitting.append(date_format)
    return fitting


def _are_dates(texts: "pd.Series[Any]", date_format: str) -> bool:
    try:
        unix_times_of(texts, date_format)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class DateColumns:
    """Date columns with their formats, first days and periods, from the training rows.

    The numbers of a date are the days since the first one, and sine and cosine of the periods
    that the column spans.
    """

    formats: Mapping[str, str]
    origins: Mapping[str, float]  # days since 1970
    periods: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        table: "pd.DataFrame",
        formats: Mapping[str, str],
        train: "np.ndarray[Any, Any]",
        path: str,
    ) -> Self:
        """Find the first days and periods of the training rows.

        Raises:
            WorkloadError: A value is not a date of the format, or there is none.
        """
        origins, periods = {}, {}
        for name, times in times_by_column(table, formats, path).items():
            days = times[train][times[train] != NO_DATE] / 86_400
            if not len(days):
                raise WorkloadError(
                    f"{path}: the column(s) {name!r} have no value in any training row: put "
                    "them under ignore"
                )
            spans = {
                "time of day": bool((days % 1).any()),
                "weekday": np.ptp(days) >= 7,
                "time of year": np.ptp(days) >= 365,
            }
            origins[name] = float(np.floor(days.min()))
            periods[name] = tuple(period for period, is_spanned in spans.items() if is_spanned)
        return cls(formats, origins, periods)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the numbers of all columns."""
        return tuple(
            f"{name} ({number})"
            for name, periods in self.periods.items()
            for number in (
                "days",
                *(f"{period} {wave}" for period in periods for wave in ("sin", "cos")),
            )
        )

    def numbers(self, times: Mapping[str, Any], ops: Any = np) -> list[Any]:
        """Return the numbers of all columns, each float64 of shape ``[rows]``; NaN if missing.

        Args:
            times: Unix times by column.
            ops: Operations: NumPy, or ``keras.ops`` for tensors.
        """
        return [number for name in self.formats for number in self._numbers(name, times[name], ops)]

    def _numbers(self, name: str, times: Any, ops: Any) -> Iterator[Any]:
        days = times / 86_400 if ops is np else ops.cast(times, "float64") / 86_400
        days = ops.where(ops.equal(times, NO_DATE), np.float64("nan"), days)
        yield days - self.origins[name]
        for period in self.periods[name]:
            # A weekday is one of seven angles, and the time of a day none of its business.
            angle = ops.floor(days) if period == "weekday" else days
            angle = angle * (2 * math.pi / _PERIODS[period])
            yield ops.sin(angle)
            yield ops.cos(angle)

    def times(self, numbers: "np.ndarray[Any, Any]") -> "dict[str, np.ndarray[Any, Any]]":
        """Return Unix times by column of numbers of shape ``[rows, numbers]``."""
        times, position = {}, 0
        for name in self.formats:
            days = numbers[:, position].astype(np.float64) + self.origins[name]
            seconds = np.round(np.nan_to_num(days) * 86_400).astype(np.int64)
            times[name] = np.where(np.isnan(days), NO_DATE, seconds)
            position += 1 + 2 * len(self.periods[name])
        return times


def times_by_column(
    table: "pd.DataFrame", formats: Mapping[str, str], path: str
) -> "dict[str, np.ndarray[Any, Any]]":
    """Return the Unix times of date columns, int64 of shape ``[rows]``.

    Raises:
        WorkloadError: A value is not a date of the format; names column, row (from 1) and value.
    """
    try:
        return {name: unix_times_of(table[name], formats[name]) for name in formats}
    except ValueError as error:
        raise WorkloadError(
            f"{path}: {error}: fix them, or put the column under categorical or ignore"
        ) from error
