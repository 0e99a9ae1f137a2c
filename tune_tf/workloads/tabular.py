"""Workload on the columns of a CSV or Parquet file."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from tune_tf.errors import WorkloadError, did_you_mean
from tune_tf.workload import Config
from tune_tf.workloads.column_model import floats_of, texts_of
from tune_tf.workloads.head import Head, dense_layers, format_rows, is_classification
from tune_tf.workloads.settings_workload import (
    DataSettings,
    SettingsWorkload,
    TaskKind,
    row_splits,
    stamp_of,
)
from tune_tf.workloads.table import (
    TableColumns,
    holds_dates,
    looks_like_numbers,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd

_FEW = 20  # classes that are accepted for any number of rows


class TabularSettings(DataSettings):
    """Settings of a table: its path, target and columns.

    Args:
        path: A CSV file with a header line, or a Parquet file. Example: ``wine.csv``.
        target: The column that is predicted. Example: ``quality``.
        task: Whether it holds classes or numbers. ``auto``: classes if it holds text, true and
            false, or whole numbers with at most 20 values.
        ignore: Columns that it is not predicted from. Example: ``[id]``.
        categorical: Columns that hold categories, such as numbers that are names. Example:
            ``[zip]``.
        read_csv: Arguments of ``pandas.read_csv`` for a text file; without ``sep`` it finds the
            separator in the first line, with a slower parser. Example: ``{sep: ;, decimal: ",",
            encoding: cp1252}``.
    """

    target: Annotated[str, Field(min_length=1)]
    task: TaskKind = "auto"
    ignore: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    read_csv: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TableProperties:
    """Properties of a table; without ``classes``, in the order of the outputs, for regression."""

    columns: TableColumns
    classes: tuple[str, ...]
    head: Head


class TabularMLP(SettingsWorkload[TabularSettings, TableProperties, "pd.DataFrame"]):
    """Perceptron on the columns of a table: numbers are standardized, categories embedded.

    The model takes numbers as in the file, NaN if missing. Its layers impute medians, add
    missing-value indicators and standardize, with statistics of the training rows only.

    Config values read: ``num_layers`` (default 1), ``width`` (128), ``dropout`` (0),
    ``embedding_dim`` (8), and those of :func:`~tune_tf.workloads.head.make_optimizer`.
    """

    settings_class = TabularSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        columns = self.properties.columns
        inputs, parts = {}, []
        if len(columns.medians):
            inputs["numeric"] = keras.Input((len(columns.medians),), name="numeric")
            parts += columns.numeric_features(inputs["numeric"])
        if columns.categories:
            shape = (len(columns.categories),)
            inputs["categorical"] = keras.Input(shape, name="categorical", dtype="int32")
            num_codes = sum(2 + len(categories) for categories in columns.categories.values())
            embed = keras.layers.Embedding(num_codes, int(config.get("embedding_dim", 8)))
            parts.append(keras.layers.Flatten()(embed(inputs["categorical"])))
        features = keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]
        return self.properties.head.compiled(inputs, dense_layers(features, config), config)

    def inputs_of(self, table: "pd.DataFrame") -> dict[str, "np.ndarray[Any, Any]"]:
        """Return the model's inputs for the rows of a table with the same columns.

        ``numeric`` is float32 with NaN for missing values, ``categorical`` int32 codes; both have
        the shape ``[rows, columns]`` and exist if there are such columns.

        Raises:
            WorkloadError: A column is missing, or a value is not a number; names column and row.
        """
        self._require(table, [*self.properties.columns.names])
        with self._errors_with_path():
            return self.properties.columns.inputs_of(table)

    def serving_model(self, model: Any, config: Config) -> Any:
        """Return a model with one input per column."""
        return self.properties.columns.serving_model(model)

    def serving_rows(self, rows: Any) -> "pd.DataFrame":
        """Return the first rows of the file, as many as ``rows``, as the file has them."""
        number = len(next(iter(rows.values())))
        return self._read()[0][[*self.properties.columns.names]].head(number)

    def _read(self) -> "tuple[pd.DataFrame, str]":
        path = Path(self.settings.path)
        stamp = stamp_of([path])
        return read_table(path, self.settings.read_csv), stamp

    def _properties_of(self, source: "pd.DataFrame") -> TableProperties:
        settings = self.settings
        self._require(source, [settings.target, *settings.ignore, *settings.categorical])
        numbers, dates, categorical = self._columns_by_kind(source)
        classes = self._classes(source[settings.target])
        y = self._targets(source, classes)
        rows = row_splits(len(source), settings, y if classes else None)["train"]
        with self._errors_with_path():
            columns = TableColumns.of(source, rows, numbers, dates, categorical)
        head = Head(len(classes)) if classes else Head.of_numbers(y[rows])
        return TableProperties(columns, classes, head)

    def _parts_of(self, source: "pd.DataFrame", config: Config) -> dict[str, Any]:
        return {"train": (self.inputs_of(source), self._targets(source, self.properties.classes))}

    @contextlib.contextmanager
    def _errors_with_path(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise WorkloadError(
                f"{self.settings.path}: {error}: fix the file, or put the column under categorical "
                "or ignore"
            ) from error

    def _require(self, table: "pd.DataFrame", names: list[str]) -> None:
        columns = list(table.columns)
        if missing := [name for name in dict.fromkeys(names) if name not in columns]:
            text = ", ".join(f"{name!r}{did_you_mean(name, columns)}" for name in missing)
            raise WorkloadError(
                f"{self.settings.path} has no column {text}; its columns are {', '.join(columns)}"
            )

    def _columns_by_kind(self, table: "pd.DataFrame") -> tuple[list[str], list[str], list[str]]:
        """Return the columns of numbers, of dates and of categories."""
        from pandas.api import types

        settings = self.settings
        numbers, dates, categorical = [], [], []
        for name in table.columns:
            column = table[name]
            if name == settings.target or name in settings.ignore:
                continue
            if name in settings.categorical or types.is_bool_dtype(column):
                categorical.append(name)
            elif holds_dates(column):
                dates.append(name)
            elif types.is_numeric_dtype(column):
                numbers.append(name)
            else:
                self._check_texts(column)
                categorical.append(name)
        if not any((numbers, dates, categorical)):
            raise WorkloadError(
                f"{settings.path} has no column besides the target {settings.target!r} to predict "
                "it from"
            )
        return numbers, dates, categorical

    def _check_texts(self, column: "pd.Series[Any]") -> None:
        """Refuse objects, and numbers that pandas has read as text."""
        values = column.dropna().astype(object)
        are_texts = values.map(lambda value: isinstance(value, str | bool | int | float)).all()
        if not are_texts or looks_like_numbers(values):
            raise WorkloadError(
                f"{self.settings.path}: column {column.name!r} is not read as numbers, such as "
                f"{values.iloc[0]!r}: if it holds numbers, write read_csv: {{decimal: ','}} or "
                "{thousands: ','} under data (init: --read-csv decimal=,); if not, put it under "
                "categorical (for the target, task: classification)"
            )

    def _classes(self, target: "pd.Series[Any]") -> tuple[str, ...]:
        """Return the target values as sorted texts; empty for regression."""
        from pandas.api import types

        path, name = self.settings.path, self.settings.target
        missing = target.isna().to_numpy()
        if missing.any():
            raise WorkloadError(
                f"{path}: the target {name!r} is missing in {format_rows(missing, 1)}: leave these "
                "rows out of the file"
            )
        if self.settings.task == "regression":
            return ()
        is_number = types.is_numeric_dtype(target) and not types.is_bool_dtype(target)
        if is_number and not is_classification(target.to_numpy(), self.settings.task):
            return ()
        if self.settings.task == "auto" and not types.is_numeric_dtype(target):  # nor truth
            self._check_texts(target)
        classes = [str(text) for text in texts_of(target).unique()]
        if not 2 <= len(classes) <= max(_FEW, len(target) / 2):
            raise WorkloadError(
                f"{path}: the target {name!r} holds {len(classes)} different value(s) in "
                f"{len(target)} rows, such as {classes[0]!r}, which are no classes to learn: name "
                "another column, or fix the values that are not numbers"
            )
        return tuple(sorted(classes, key=float) if is_number else sorted(classes))

    def _targets(self, table: "pd.DataFrame", classes: tuple[str, ...]) -> Any:
        import pandas as pd

        target = table[self.settings.target]
        if classes:
            texts = texts_of(target).to_numpy(object)
            return pd.Index(classes, dtype=object).get_indexer(texts).astype(np.int32)
        with self._errors_with_path():
            return floats_of(target).astype(np.float32)
