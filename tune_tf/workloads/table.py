"""Tables: their files, and columns as inputs of models."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workloads.column_model import DATE, days_of, floats_of, texts_of

if TYPE_CHECKING:
    import keras
    import pandas as pd

_PARQUET_SUFFIXES = (".parquet", ".pq")
TABLE_SUFFIXES = (".csv", ".tsv", ".tab", *_PARQUET_SUFFIXES)

_UNKNOWN_TEXT = "\0unknown"  # NUL occurs in no CSV file, so it equals no category
_NUMBER = re.compile(r"\s*[+-]?\d+([.,' ]\d{3})*([.,]\d+)?\s*")
_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PERIODS = (1.0, 7.0, 365.2425)  # days


def read_table(path: Path, arguments: Mapping[str, Any]) -> "pd.DataFrame":
    """Return the table in a Parquet (``.parquet``, ``.pq``) or text file with a header line.

    Args:
        path: The file.
        arguments: Of ``pandas.read_csv``, which finds a separator that they lack.

    Raises:
        WorkloadError: The file cannot be read or has no rows.
    """
    import pandas as pd

    finding = {"sep": None, "engine": "python"}  # pandas finds it with its slower parser only
    usual = finding if arguments.keys().isdisjoint(("sep", "delimiter")) else {"low_memory": False}
    try:
        if path.suffix.lower() in _PARQUET_SUFFIXES:
            table = pd.read_parquet(path)
        else:
            with warnings.catch_warnings():
                # If all lines are longer than the header, pandas only warns and drops their ends.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                table = pd.read_csv(path, **{"index_col": False, **usual, **arguments})
        num_rows = len(table)  # not of an iterator of chunks
    except Exception as error:
        raise WorkloadError(
            f"{path} cannot be read as a table: {error}; if it is written in another way, write "
            "arguments of pandas.read_csv under data, such as read_csv: {encoding: cp1252}"
        ) from error
    if not num_rows:
        raise WorkloadError(f"{path} has a header but no rows")
    table.columns = [str(name) for name in table.columns]
    return table


def holds_dates(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds datetimes, or only texts of dates as in ISO 8601."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        return True
    values = column.dropna()
    if pd.api.types.is_numeric_dtype(values) or not len(values):
        return False
    texts = values.astype(str)
    if not texts.str.match(r"\d{4}-\d\d-\d\d").all():
        return False
    return bool(pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True).notna().all())


def looks_like_numbers(column: "pd.Series[Any]") -> bool:
    """Return whether all texts of a column are numbers, some with a fraction or thousands."""
    texts = column.dropna().astype(str)
    are_numbers = texts.map(lambda text: bool(_NUMBER.fullmatch(text))).all()
    return bool(are_numbers and texts.str.contains("[.,' ]", regex=True).any())


@dataclass(frozen=True, eq=False)
class TableColumns:
    """Columns of a table that a model is trained on, with statistics of the training rows.

    The model's input ``numeric`` holds the numeric columns, then the dates as days since 1970 in
    UTC; its input ``categorical`` holds codes that form one range. The first code of a column is
    for categories that no training row has, the second for missing values.

    Args:
        numbers: Names of the numeric columns.
        dates: Names of the date columns.
        categories: Sorted categories of each categorical column.
        medians: Of each number in ``numeric``; they replace missing values.
        means: Of each number, after that.
        variances: Of each number, after that; none is 0.
        missing: Whether any number was missing.
    """

    numbers: tuple[str, ...]
    dates: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    medians: "np.ndarray[Any, Any]"
    means: "np.ndarray[Any, Any]"
    variances: "np.ndarray[Any, Any]"
    missing: "np.ndarray[Any, Any]"

    @classmethod
    def of(
        cls,
        table: "pd.DataFrame",
        train: "np.ndarray[Any, Any]",
        numbers: list[str],
        dates: list[str],
        categorical: list[str],
    ) -> Self:
        """Return the columns of a table, whose rows with the numbers ``train`` are trained on.

        Raises:
            ValueError: A value is not a number or a date, or a column has no values.
        """
        values = _numbers_of(table, numbers, dates)[train]
        missing = np.isnan(values)
        if missing.all(axis=0).any():
            empty = np.flatnonzero(missing.all(axis=0))
            names = ", ".join(repr([*numbers, *dates][column]) for column in empty)
            raise ValueError(f"the column(s) {names} have no value in any training row")
        medians = np.nanmedian(values, axis=0)
        filled = np.where(missing, medians, values)
        variances = filled.var(axis=0)
        variances[variances == 0] = 1
        categories = {
            name: tuple(sorted(set(texts_of(table[name].iloc[train])) - {""}))
            for name in categorical
        }
        means, is_missing = filled.mean(axis=0), missing.any(axis=0)
        return cls(tuple(numbers), tuple(dates), categories, medians, means, variances, is_missing)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.numbers, *self.dates, *self.categories)

    @property
    def num_codes(self) -> int:
        """Number of codes of all categorical columns together."""
        return sum(2 + len(categories) for categories in self.categories.values())

    def inputs_of(self, table: "pd.DataFrame") -> "dict[str, np.ndarray[Any, Any]]":
        """Return a model's inputs, each of shape ``[rows, columns]``, if there are such columns.

        Raises:
            ValueError: A value is not a number or a date; names column, row and value.
        """
        import pandas as pd

        inputs: dict[str, Any] = {}
        if len(self.medians):
            inputs["numeric"] = _numbers_of(table, self.numbers, self.dates).astype(np.float32)
        if self.categories:
            codes = np.empty((len(table), len(self.categories)), np.int32)
            first = 0
            for position, (name, categories) in enumerate(self.categories.items()):
                known = pd.Index(["", *categories], dtype=object)
                texts = texts_of(table[name]).to_numpy(object)
                codes[:, position] = first + 1 + known.get_indexer(texts)  # -1 for unknown texts
                first += 2 + len(categories)
            inputs["categorical"] = codes
        return inputs

    def numeric_features(self, numbers: Any) -> list[Any]:
        """Return imputed and standardized numbers, missing-value flags and periods of dates."""
        import keras

        missing = keras.ops.isnan(numbers)
        filled = keras.ops.where(missing, self.medians.astype(np.float32), numbers)
        parts = [keras.layers.Normalization(mean=self.means, variance=self.variances)(filled)]
        if self.missing.any():
            # Constant 0 for columns without missing values in the training rows.
            flags = keras.ops.cast(missing, "float32") * self.missing.astype(np.float32)
            parts.append(flags)
        if self.dates:
            for period in _PERIODS:
                days = filled[:, len(self.numbers) :]
                # A weekday is one of seven angles, and the time of a day none of its business.
                days = keras.ops.floor(days) if period == 7 else days
                angle = days % period * (2 * np.pi / period)
                parts += [keras.ops.sin(angle), keras.ops.cos(angle)]
        return parts

    def serving_model(self, model: "keras.Model") -> "keras.Model":
        """Return a model with one input per column, named after it, of shape ``[rows]``.

        Numbers are float32 and dates are float64, days since 1970 in UTC, both NaN if missing.
        Categories are strings, empty if missing. The model is not compiled.
        """
        import keras

        dtypes = dict.fromkeys(self.numbers, "float32")
        dtypes |= dict.fromkeys(self.dates, DATE)
        dtypes |= dict.fromkeys(self.categories, "string")
        tensors = {name: keras.Input((), dtype=dtype) for name, dtype in dtypes.items()}
        encoded: dict[str, Any] = {}
        if len(self.medians):
            names = (*self.numbers, *self.dates)
            numbers = [keras.ops.cast(tensors[name], "float32") for name in names]
            encoded["numeric"] = keras.ops.stack(numbers, axis=-1)
        if self.categories:
            codes, first = [], 0
            for name, categories in self.categories.items():
                lookup = keras.layers.StringLookup(
                    vocabulary=["", *categories], oov_token=_UNKNOWN_TEXT, mask_token=None
                )
                codes.append(lookup(tensors[name]) + first)
                first += 2 + len(categories)
            encoded["categorical"] = keras.ops.cast(keras.ops.stack(codes, axis=-1), "int32")
        encoder = keras.Model(list(tensors.values()), encoded)
        copy = keras.models.clone_model(model)  # without the optimizer: inference needs none
        copy.set_weights(model.get_weights())
        columns = {
            column: keras.Input((), name=name, dtype=dtypes[column])
            for column, name in _input_names(dtypes, encoder.name, copy.name).items()
        }
        with warnings.catch_warnings():  # about input names that differ from the column names
            warnings.simplefilter("ignore", UserWarning)
            return keras.Model(columns, copy(encoder(list(columns.values()))), name=model.name)


def _numbers_of(table: "pd.DataFrame", numbers: Any, dates: Any) -> Any:
    columns = [floats_of(table[name]) for name in numbers]
    columns += [days_of(table[name]) for name in dates]
    return np.stack(columns, axis=-1) if columns else np.empty((len(table), 0))


def _input_names(columns: Mapping[str, str], *used: str) -> dict[str, str]:
    """Return the Keras name of each column's input, also that in a SavedModel's signature.

    It is the column's own if TensorFlow accepts it as the name of an argument, otherwise
    ``column_`` and its position.
    """
    taken = {"self", *used}
    names = {}
    for position, column in enumerate(columns):
        is_argument = _ARGUMENT.fullmatch(column) and not iskeyword(column)
        is_free = column.lower() not in taken
        names[column] = column if is_argument and is_free else f"column_{position}"
        taken.add(names[column].lower())
    return names
