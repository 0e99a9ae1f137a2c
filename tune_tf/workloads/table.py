"""Columns of tables: their encoding, and models with one input per column."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workloads.column_model import floats_of, texts_of
from tune_tf.workloads.dates import DateColumns, times_by_column

if TYPE_CHECKING:
    import keras
    import pandas as pd

# NUL occurs in no CSV file, so these equal no category.
_UNKNOWN_TEXT = "\0unknown"
_MISSING_TEXT = "\0missing"

_OPERATION_NAME = re.compile(
    r"(stack|add|cast|string_lookup|subtract|multiply|true_divide|floor|sin|cos|equal|where)(_\d+)?"
)
"""Name that Keras gives to an operation between the columns and the model."""


_FEW = 20  # categories that are accepted for any number of rows
_UNKNOWN, _MISSING, _RESERVED = range(3)  # the first two codes of a column, and their number


@dataclass(frozen=True, eq=False)
class NumericColumns:
    """Numeric columns with statistics of the training rows, each of shape ``[columns]``.

    Means and variances, none 0, are those after missing values were replaced by medians;
    ``missing`` says whether there were any.
    """

    names: tuple[str, ...]
    medians: "np.ndarray[Any, Any]"
    means: "np.ndarray[Any, Any]"
    variances: "np.ndarray[Any, Any]"
    missing: "np.ndarray[Any, Any]"

    @classmethod
    def of(cls, names: tuple[str, ...], values: "np.ndarray[Any, Any]", path: str) -> Self:
        """Compute the statistics of values in the training rows, shape ``[rows, columns]``.

        Raises:
            WorkloadError: A column has no values.
        """
        missing = np.isnan(values)
        if empty := [repr(names[i]) for i in np.flatnonzero(missing.all(axis=0))]:
            raise WorkloadError(
                f"{path}: the column(s) {', '.join(empty)} have no value in any training row: put "
                "them under ignore"
            )
        medians = np.nanmedian(values, axis=0)
        filled = np.where(missing, medians, values)
        variances = filled.var(axis=0)
        variances[variances == 0] = 1
        return cls(names, medians, filled.mean(axis=0), variances, missing.any(axis=0))


@dataclass(frozen=True, eq=False)
class CategoricalColumns:
    """Sorted categories of the training rows by column, in the model's input order.

    Their codes form one range. The first code of a column is for categories that no training row
    has, the second for missing values.
    """

    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, table: "pd.DataFrame", names: tuple[str, ...]) -> Self:
        """Collect the categories of the training rows."""
        return cls({name: tuple(sorted(texts_of(table[name]).dropna().unique())) for name in names})

    def identifiers(self, num_rows: int) -> list[str]:
        """Return the columns that identify rows, of which there were so many in training."""
        most = max(_FEW, num_rows / 2)
        return [name for name, known in self.categories.items() if len(known) > most]

    @property
    def num_codes(self) -> int:
        """Number of codes of all columns together."""
        return sum(len(categories) + _RESERVED for categories in self.categories.values())

    def ranges(self) -> Iterator[tuple[str, int, tuple[str, ...]]]:
        """Yield the name, first code and categories of each column."""
        first = 0
        for name, categories in self.categories.items():
            yield name, first, categories
            first += len(categories) + _RESERVED

    def codes(self, table: "pd.DataFrame") -> "np.ndarray[Any, Any]":
        """Return the columns of a table as int32 of shape ``[rows, columns]``."""
        import pandas as pd

        codes = np.empty((len(table), len(self.categories)), np.int32)
        for position, (name, first, categories) in enumerate(self.ranges()):
            texts = texts_of(table[name])
            index = pd.Index(categories, dtype=object)
            column = index.get_indexer(texts.to_numpy(object)) + _RESERVED
            column[column < _RESERVED] = _UNKNOWN  # get_indexer returns -1 for unknown texts
            column[texts.isna().to_numpy()] = _MISSING
            codes[:, position] = first + column
        return codes


def numbers_of(table: "pd.DataFrame", names: tuple[str, ...], path: str) -> "np.ndarray[Any, Any]":
    """Return columns as float64 of shape ``[rows, columns]``, NaN for missing values.

    Raises:
        WorkloadError: A value is not a finite number; names column, row (from 1) and value.
    """
    values = np.empty((len(table), len(names)), np.float64)
    for position, name in enumerate(names):
        try:
            values[:, position] = floats_of(table[name])
        except ValueError as error:
            raise WorkloadError(
                f"{path}: {error}: fix them, or put the column under categorical or ignore"
            ) from error
    return values


@dataclass(frozen=True, eq=False)
class InputColumns:
    """Columns of a table that a model is trained on, by kind.

    The model's input ``numeric`` holds the numeric columns, then the numbers of the dates.
    """

    names: tuple[str, ...]  # of numeric columns
    dates: DateColumns
    categorical: CategoricalColumns

    @property
    def numeric_names(self) -> tuple[str, ...]:
        """Names of the numbers in the input ``numeric``."""
        return (*self.names, *self.dates.number_names)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return (*self.names, *self.dates.formats, *self.categorical.categories)

    def numbers(self, table: "pd.DataFrame", path: str) -> "np.ndarray[Any, Any]":
        """Return the input ``numeric`` of a table as float64 of shape ``[rows, numbers]``."""
        times = times_by_column(table, self.dates.formats, path)
        columns = [*numbers_of(table, self.names, path).T, *self.dates.numbers(times)]
        return np.stack(columns, axis=-1) if columns else np.empty((len(table), 0))

    def serving_model(self, model: "keras.Model") -> "keras.Model":
        """Return a model with one input per column, named after it, of shape ``[rows]``.

        Numbers are float32, NaN if missing. Dates are int64, Unix times. Categories are strings,
        empty if missing; those that no training row has get the code of unknown ones. The weights
        are copies, and the model is not compiled.
        """
        import keras

        dtypes = dict.fromkeys(self.names, "float32")
        dtypes |= dict.fromkeys(self.dates.formats, "int64")
        dtypes |= dict.fromkeys(self.categorical.categories, "string")
        names = _input_names(dtypes, model.name)
        columns: dict[str, Any] = {
            column: keras.Input((), name=names[column], dtype=dtype)
            for column, dtype in dtypes.items()
        }
        inputs: dict[str, Any] = {}
        if self.numeric_names:
            numbers = [columns[name] for name in self.names]
            numbers += [
                keras.ops.cast(number, "float32")
                for number in self.dates.numbers(columns, keras.ops)
            ]
            inputs["numeric"] = keras.ops.stack(numbers, axis=-1)
        if self.categorical.categories:
            codes = []
            for name, first, categories in self.categorical.ranges():
                lookup = keras.layers.StringLookup(
                    vocabulary=_vocabulary(categories), oov_token=_UNKNOWN_TEXT, mask_token=None
                )
                codes.append(lookup(columns[name]) + first)
            inputs["categorical"] = keras.ops.cast(keras.ops.stack(codes, axis=-1), "int32")
        copy = keras.models.clone_model(model)  # without the optimizer: inference needs none
        copy.set_weights(model.get_weights())
        with warnings.catch_warnings():  # about input names that differ from the column names
            warnings.simplefilter("ignore", UserWarning)
            return keras.Model(columns, copy(inputs), name=model.name)

    def serving_rows(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Convert rows of a trained model's inputs to those of :meth:`serving_model`.

        ``numeric`` and ``categorical`` in ``rows`` both have the shape ``[rows, columns]``. Dates
        are rounded to seconds.
        """
        columns = {name: rows["numeric"][:, i] for i, name in enumerate(self.names)}
        if self.dates.formats:
            columns |= self.dates.times(rows["numeric"][:, len(self.names) :])
        for i, (name, first, categories) in enumerate(self.categorical.ranges()):
            texts = [_UNKNOWN_TEXT, *_vocabulary(categories)]
            columns[name] = np.array(texts, object)[rows["categorical"][:, i] - first]
        return columns


def _vocabulary(categories: tuple[str, ...]) -> list[str]:
    """Return the texts of a column's codes after that for unknown ones."""
    return [_MISSING_TEXT if "" in categories else "", *categories]


def _input_names(columns: Iterable[str], model: str) -> dict[str, str]:
    """Return the Keras name of each column's input, also that in a SavedModel's signature.

    It is the column's own if TensorFlow accepts it as the name of an argument. Names are unique,
    whatever their case, and differ from those of operations.
    """
    names: dict[str, str] = {}
    used = {model.lower(), "self"}
    for column in sorted(columns, key=lambda column: _argument(column) != column):
        name = _argument(column)
        while name.lower() in used or _OPERATION_NAME.fullmatch(name) or iskeyword(name):
            name += "_"
        names[column] = name
        used.add(name.lower())
    return names


def _argument(column: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", column)
    return name if name[:1].isalpha() else f"column_{name}"
