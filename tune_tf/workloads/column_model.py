"""MLflow loader of Keras models with one input per table column.

A copy of this file is part of each such model, so that it predicts where tune_tf is not installed:
it must not import anything from tune_tf.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

DATE = "float64"
"""Type of the inputs that are dates, as days since 1970 in UTC; numbers are ``float32``."""


class ColumnModel:
    """Keras model that takes a DataFrame with the columns as they are in a file.

    Numbers may have any type, categories are compared as texts, dates are pandas datetimes or texts
    as in ISO 8601, and any value may be missing.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return the predictions for the rows of a DataFrame, of shape ``[rows, outputs]``.

        Raises:
            ValueError: A value is not a number or a date; names column, row and value.
        """
        convert: dict[str, Any] = {"string": texts_of, DATE: days_of}
        inputs = {
            name: np.asarray(convert.get(dtype, floats_of)(data[name]))
            for name, dtype in column_dtypes(self.model)
        }
        return self.model.predict(inputs, verbose=0)


def column_dtypes(model: Any) -> Iterator[tuple[str, str]]:
    """Yield names and types of the columns that a Keras model takes; none for other inputs."""
    inputs = getattr(model, "input", None)  # none of a model that was not called
    if isinstance(inputs, dict) and all(len(tensor.shape) == 1 for tensor in inputs.values()):
        for name, tensor in inputs.items():
            yield name, tensor.dtype


def texts_of(column: Any) -> Any:
    """Return a pandas column as texts, empty for missing values; 3.0 and 3 give the same text."""
    return column.astype(object).map(_text, na_action="ignore").where(column.notna(), "")


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
    return _checked(column, np.where(np.isfinite(numbers), numbers, np.nan), "finite numbers")


def days_of(column: Any) -> "np.ndarray[Any, Any]":
    """Return a pandas column of dates as days since 1970 in UTC, float64, NaN if missing.

    Dates without a time zone are taken for UTC.

    Raises:
        ValueError: A value is not a date; names row (from 1) and value.
    """
    import pandas as pd

    dates = column
    if not pd.api.types.is_datetime64_any_dtype(column):
        dates = column.astype(str).where(column.notna(), None)
    dates = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True)
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return _checked(column, days.to_numpy(np.float64), "dates as in ISO 8601")


def _checked(column: Any, numbers: Any, expected: str) -> Any:
    """Return numbers; raise ValueError if a value that is not missing could not be converted."""
    wrong = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if len(wrong):
        rows = ", ".join(str(row + 1) for row in wrong[:5])
        more = f", ... ({len(wrong)} in all)" if len(wrong) > 5 else ""
        value = column.iloc[[wrong[0]]].tolist()[0]
        raise ValueError(
            f"column {column.name!r} must hold {expected}, but row(s) {rows}{more} hold(s) "
            f"{value!r}"
        )
    return numbers


def _load_pyfunc(path: str) -> ColumnModel:
    """Return the model in a Keras file for ``mlflow.pyfunc.load_model``."""
    import keras

    with warnings.catch_warnings():  # about input names that differ from the column names
        warnings.simplefilter("ignore", UserWarning)
        return ColumnModel(keras.models.load_model(path))
