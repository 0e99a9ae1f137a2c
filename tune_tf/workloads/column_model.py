"""MLflow loader of Keras models with one input per table column.

A copy of this file is part of each such model, so that it predicts where tune_tf is not installed:
it must not import anything from tune_tf.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATES_FILE = "date_formats.json"
"""File beside the Keras model with the formats of its date columns."""

ISO_DATES = "ISO8601"
"""Format of dates as in ISO 8601: ``2026-01-31``, ``2026-01-31T12:00:00+01:00``."""

NO_DATE = np.iinfo(np.int64).min
"""Unix time of a missing date, as NumPy converts it."""

MONTH = (
    "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
"""Pattern of the English name of a month, whole or abbreviated, in upper or lower case."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ColumnModel:
    """Keras model that takes a DataFrame with the columns as they are in a file.

    Numbers may have any type, categories are compared as texts, dates are texts in the format of
    the training rows or pandas datetimes, and any value may be missing.
    """

    def __init__(self, model: Any, date_formats: Mapping[str, str]) -> None:
        self.model = model
        self.date_formats = date_formats

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return the predictions for the rows of a DataFrame, of shape ``[rows, outputs]``."""
        return self.model.predict(self.inputs_of(data), verbose=0)

    def inputs_of(self, data: Any) -> "dict[str, np.ndarray[Any, Any]]":
        """Return the inputs of the Keras model by column, each of shape ``[rows]``.

        Raises:
            ValueError: A value is not a number or a date; names column, row and value.
        """
        inputs = {}
        for name, dtype in column_dtypes(self.model):
            column = data[name]
            if name in self.date_formats:
                inputs[name] = unix_times_of(column, self.date_formats[name])
            elif dtype == "string":
                inputs[name] = texts_of(column).fillna("").to_numpy(object)
            else:
                inputs[name] = floats_of(column).astype(dtype)
        return inputs


def column_dtypes(model: Any) -> Iterator[tuple[str, str]]:
    """Yield names and types of the columns that a Keras model takes; none for other inputs."""
    inputs = getattr(model, "input", None)  # none of a model that was not called
    if isinstance(inputs, dict) and all(len(tensor.shape) == 1 for tensor in inputs.values()):
        for name, tensor in inputs.items():
            yield name, tensor.dtype


def texts_of(column: Any) -> Any:
    """Return a pandas column as texts, None for missing values; 3.0 and 3 give the same text."""
    return column.astype(object).map(_text, na_action="ignore").where(column.notna(), None)


def _text(value: Any) -> str:
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if is_whole else value)


def floats_of(column: Any) -> "np.ndarray[Any, Any]":
    """Return a pandas column as float64, NaN for missing values.

    Raises:
        ValueError: A value is not a finite number; names row (from 1) and value.
    """
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    _check_converted(column, ~np.isfinite(numbers), "finite numbers")
    return numbers


def unix_times_of(column: Any, date_format: str) -> "np.ndarray[Any, Any]":
    """Return a pandas column of dates as seconds since 1970 in UTC, int64, NO_DATE if missing.

    Dates without a time zone are taken for UTC. Names of months are English in any locale, whole
    or abbreviated.

    Raises:
        ValueError: A value is not a date of the format; names row (from 1) and value.
    """
    import pandas as pd

    dates = column
    if not pd.api.types.is_datetime64_any_dtype(column):
        texts = column.astype(object).map(str, na_action="ignore")
        numbered = _with_numbered_months(date_format)
        if numbered != date_format:
            texts = texts.map(_numbered_months, na_action="ignore")
        dates = pd.to_datetime(texts, format=numbered, errors="coerce", utc=True)
    if dates.dt.tz is not None:
        dates = dates.dt.tz_convert(None)
    times = dates.to_numpy().astype("datetime64[s]").astype(np.int64)
    _check_converted(column, times == NO_DATE, f"dates of the format {date_format}")
    return times


def _with_numbered_months(date_format: str) -> str:
    """Return a date format with #01 to #12 in place of names of months, which have a locale."""
    return re.sub("%[bB]", "#%m", date_format)


def _numbered_months(text: str) -> str:
    return re.sub(
        f"(?<![a-zA-Z]){MONTH}(?![a-zA-Z])",
        lambda name: f"#{_MONTHS.index(name[0][:3].title()) + 1:02}",
        text,
    )


def _check_converted(column: Any, is_missing: Any, expected: str) -> None:
    """Raise ValueError if a value that is not missing could not be converted."""
    wrong = np.flatnonzero(is_missing & column.notna().to_numpy())
    if len(wrong):
        rows = ", ".join(str(row + 1) for row in wrong[:5])
        more = f", ... ({len(wrong)} in all)" if len(wrong) > 5 else ""
        value = column.iloc[[wrong[0]]].tolist()[0]
        raise ValueError(
            f"column {column.name!r} must hold {expected}, but row(s) {rows}{more} hold(s) "
            f"{value!r}"
        )


def dates_of(times: Any, date_format: str) -> Any:
    """Return Unix times as a pandas column of texts of a date format, None if missing."""
    import pandas as pd

    dates = pd.Series(np.asarray(times).astype("datetime64[s]"))
    iso = "%Y-%m-%d" if (dates.dropna() == dates.dropna().dt.normalize()).all() else "%FT%T"
    numbered = iso if date_format == ISO_DATES else _with_numbered_months(date_format)
    texts = dates.dt.strftime(numbered).str.replace(
        "#(\\d\\d)", lambda number: _MONTHS[int(number[1]) - 1], regex=True
    )
    return texts.astype(object).where(dates.notna(), None)


def _load_pyfunc(path: str) -> ColumnModel:
    """Return the model in a Keras file for ``mlflow.pyfunc.load_model``."""
    import keras

    formats = json.loads(Path(path).with_name(DATES_FILE).read_text(encoding="utf-8"))
    with warnings.catch_warnings():  # about input names that differ from the column names
        warnings.simplefilter("ignore", UserWarning)
        return ColumnModel(keras.models.load_model(path), formats)
