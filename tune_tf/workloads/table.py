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
_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NUMBER = re.compile(r"\s*[+-]?\d+([.,' ]\d{3})*([.,]\d+)?\s*")


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

    if pd.api.types.is_numeric_dtype(column):
        return False
    texts = column.dropna().astype(str)
    if not len(texts) or not texts.str.match(r"\d{4}-\d\d-\d\d").all():
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
        empty = [
            name for name, rows in zip([*numbers, *dates], missing.T, strict=True) if rows.all()
        ]
        if empty:
            raise ValueError(f"the column(s) {empty} have no value in any training row")
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
            codes, first = [], 0
            for name, categories in self.categories.items():
                known = pd.Index(["", *categories], dtype=object)
                codes.append(first + 1 + known.get_indexer(texts_of(table[name])))  # -1 for unknown
                first += 2 + len(categories)
            inputs["categorical"] = np.stack(codes, axis=-1).astype(np.int32)
        return inputs

    def numeric_features(self, numbers: Any) -> list[Any]:
        """Return imputed and standardized numbers, and missing-value flags."""
        import keras

        missing = keras.ops.isnan(numbers)
        filled = keras.ops.where(missing, self.medians.astype(np.float32), numbers)
        parts = [keras.layers.Normalization(mean=self.means, variance=self.variances)(filled)]
        if self.missing.any():
            # Constant 0 for columns without missing values in the training rows.
            flags = keras.ops.cast(missing, "float32") * self.missing.astype(np.float32)
            parts.append(flags)
        return parts

    def serving_model(self, trained: "keras.Model") -> "keras.Model":
        """Return the model from the columns to the outputs of a trained one.

        It has one input per column, by its name, of shape ``[rows]``. Numbers are float32 and dates
        are float64, days since 1970 in UTC, both NaN if missing. Categories are strings, empty if
        missing. It is not compiled.
        """
        import keras

        dtypes = dict.fromkeys(self.numbers, "float32")
        dtypes |= dict.fromkeys(self.dates, DATE)
        dtypes |= dict.fromkeys(self.categories, "string")
        tensors = {column: keras.Input((), dtype=dtype) for column, dtype in dtypes.items()}
        encoded: dict[str, Any] = {}
        if len(self.medians):
            names = (*self.numbers, *self.dates)
            numbers = [keras.ops.cast(tensors[name], "float32") for name in names]
            encoded["numeric"] = keras.ops.stack(numbers, axis=-1)
        if self.categories:
            codes, first = [], 0
            for column, categories in self.categories.items():
                lookup = keras.layers.StringLookup(
                    vocabulary=["", *categories], oov_token=_UNKNOWN_TEXT, mask_token=None
                )
                codes.append(lookup(tensors[column]) + first)
                first += 2 + len(categories)
            encoded["categorical"] = keras.ops.cast(keras.ops.stack(codes, axis=-1), "int32")
        encoder = keras.Model(list(tensors.values()), encoded)
        predictor = keras.Model(trained.input, trained.output)  # inference needs no optimizer
        taken = {"self", encoder.name, predictor.name}
        inputs: dict[str, Any] = {}
        for number, (column, dtype) in enumerate(dtypes.items()):
            # Its name in a SavedModel's signature, too, where it must be that of an argument.
            is_argument = _ARGUMENT.fullmatch(column) and not iskeyword(column)
            name = column if is_argument and column.lower() not in taken else f"column_{number}"
            inputs[column] = keras.Input((), name=name, dtype=dtype)
            taken.add(name.lower())
        outputs = predictor(encoder(list(inputs.values())))
        with warnings.catch_warnings():  # about input names that differ from the column names
            warnings.simplefilter("ignore", UserWarning)
            return keras.Model(inputs, outputs)


def _numbers_of(table: "pd.DataFrame", numbers: Any, dates: Any) -> Any:
    columns = [floats_of(table[name]) for name in numbers]
    columns += [days_of(table[name]) for name in dates]
    return np.stack(columns, axis=-1) if columns else np.empty((len(table), 0))
