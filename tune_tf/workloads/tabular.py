"""Workload on the columns of a CSV or Parquet file."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.errors import WorkloadError, did_you_mean
from tune_tf.workload import Config, Data
from tune_tf.workloads.column_model import texts_of
from tune_tf.workloads.dates import DateColumns, date_formats_of, looks_like_dates
from tune_tf.workloads.head import Head, dense_layers, format_rows, is_classification
from tune_tf.workloads.settings_workload import (
    DataSettings,
    FileStamp,
    Names,
    SettingsWorkload,
    TaskKind,
    Text,
    existing_file,
    row_splits,
)
from tune_tf.workloads.table import (
    CategoricalColumns,
    InputColumns,
    NumericColumns,
    numbers_of,
)
from tune_tf.workloads.table_file import (
    DecimalMark,
    TextFormat,
    complete_format,
    format_notes,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

_FEW_CLASSES = 20  # classes that are accepted for any number of rows


def _date_formats(value: Any) -> Any:
    """Convert a list of names, whose formats are guessed, to a mapping."""
    return dict.fromkeys(value) if isinstance(value, list | tuple) else value


DateFormats = Annotated[dict[str, str | None], BeforeValidator(_date_formats)]
"""Formats of columns by name; None to guess it."""


class TabularSettings(DataSettings):
    """Settings of a table: its path, target and columns.

    Args:
        path: A CSV file with a header line, or a Parquet file. Example: ``wine.csv``.
        target: The column that is predicted. Example: ``quality``.
        task: Whether it holds classes or numbers. ``auto``: classes if it holds text, true and
            false, or whole numbers with at most 20 values.
        columns: What it is predicted from; None for all other columns. Example: ``[age, city]``.
        ignore: Columns left out. Example: ``[id]``.
        numeric: Columns that hold numbers, whatever they look like. Example: ``[age]``.
        categorical: Columns that hold categories, such as numbers that are names. Example:
            ``[zip]``.
        dates: Columns that hold dates, as a list or with their formats. Example: ``{sold:
            "%d/%m/%Y"}``.
        separator: Character between values of a CSV file; None to guess it from the file. Example:
            ``;``.
        decimal: Character before the fraction of a number; None to guess it. Example: ``","``.
        encoding: Encoding of a CSV file as in Python; None to guess it. Example: ``cp1252``.
    """

    path: Text
    target: Text
    task: TaskKind = "auto"
    columns: Names | None = None
    ignore: Names = ()
    numeric: Names = ()
    categorical: Names = ()
    dates: DateFormats = Field(default_factory=dict)
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    decimal: DecimalMark | None = None
    encoding: Text | None = None

    @field_validator("columns", "ignore", "numeric", "categorical", "dates")
    @classmethod
    def _check_names(cls, names: Any, info: ValidationInfo) -> Any:
        target = info.data.get("target")
        if target is not None and target in (names or ()):
            raise ValueError(f"holds the target {target!r}: leave it out here")
        return names

    @field_validator("categorical", "dates")
    @classmethod
    def _check_kinds(cls, names: Any, info: ValidationInfo) -> Any:
        for other in ("numeric", "categorical"):
            if other == info.field_name:
                break
            if shared := sorted({*names} & {*info.data.get(other, ())}):
                raise ValueError(f"and {other} both hold {', '.join(shared)}: put each in only one")
        return names


@dataclass(frozen=True, eq=False)
class TableProperties:
    """Properties of a table; without ``classes``, in the order of the outputs, for regression."""

    columns: InputColumns
    numeric: NumericColumns  # the model's input of this name
    classes: tuple[str, ...]
    head: Head
    text_format: TextFormat | None  # None for Parquet

    @property
    def categorical(self) -> CategoricalColumns:
        """The categorical columns."""
        return self.columns.categorical


@cache
def _warn(text: str) -> None:
    """Log a warning once per process: `init` and `run` inspect a table several times."""
    _log.warning(text)


@dataclass
class _Kinds:
    """Columns by kind, with the formats of dates."""

    numeric: list[str] = field(default_factory=list)
    dates: dict[str, str] = field(default_factory=dict)
    categorical: list[str] = field(default_factory=list)


def _unclear_dates(column: "pd.Series[Any]", formats: list[str]) -> str:
    """Return the note on a column of dates in several formats, or none that is known."""
    name = str(column.name)
    known = f"may be {' or '.join(formats)}"
    if not formats:
        first = str(column.dropna().iloc[0])
        known = f"have no common format that is known (the first is {first!r})"
    example = formats[0] if formats else "%d.%m.%Y"
    return (
        f"column {name!r} is left out: its dates {known}; write under data: "
        f'dates: {{{json.dumps(name, ensure_ascii=False)}: "{example}"}}'
    )


def _few_values(
    table: "pd.DataFrame", columns: InputColumns, classes: tuple[str, ...], target: str
) -> list[str]:
    """Return notes on columns with one value, and on classes with one row."""
    notes = []
    if constant := [repr(name) for name in columns.all_names if table[name].nunique() == 1]:
        notes.append(
            f"column(s) {', '.join(constant)} have one value, from which nothing is learnt: put "
            "them under data.ignore"
        )
    if classes:
        counts = texts_of(table[target]).value_counts()
        if single := [repr(name) for name in classes if counts[name] == 1]:
            notes.append(
                f"class(es) {', '.join(single)} of {target!r} have one row, which is either "
                "trained on or tested: add rows, or leave them out of the file"
            )
    return notes


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

        numeric, categorical = self.properties.numeric, self.properties.categorical
        inputs, parts = {}, []
        if numeric.names:
            inputs["numeric"] = keras.Input((len(numeric.names),), name="numeric")
            parts += _standardized(inputs["numeric"], numeric)
        if categorical.categories:
            shape = (len(categorical.categories),)
            inputs["categorical"] = keras.Input(shape, name="categorical", dtype="int32")
            dim = int(config.get("embedding_dim", 8))
            embed = keras.layers.Embedding(categorical.num_codes, dim)
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
        columns = self.properties.columns
        self._require(table, [*columns.all_names])
        inputs = {}
        if columns.numeric_names:
            inputs["numeric"] = columns.numbers(table, self.settings.path).astype(np.float32)
        if columns.categorical.categories:
            inputs["categorical"] = columns.categorical.codes(table)
        return inputs

    def serving_model(self, model: Any, config: Config) -> Any:
        """Return a model with one input per column."""
        return self.properties.columns.serving_model(model)

    def serving_rows(self, rows: Any) -> Any:
        """Return rows by column, as inputs of :meth:`serving_model`."""
        return self.properties.columns.serving_rows(rows)

    @property
    def date_formats(self) -> Mapping[str, str]:
        """Formats of the date columns."""
        return self.properties.columns.dates.formats

    def _read(self) -> "tuple[pd.DataFrame, FileStamp]":
        path = existing_file(self.settings.path, "data.path")
        stamp = FileStamp.of([path])
        return read_table(path, self._given_format), stamp

    @property
    def _given_format(self) -> TextFormat:
        settings = self.settings
        return TextFormat(settings.separator, settings.decimal, settings.encoding)

    def _properties_of(self, source: "pd.DataFrame") -> TableProperties:
        settings = self.settings
        names = (*(settings.columns or ()), *settings.ignore)
        names += (*settings.numeric, *settings.categorical, *settings.dates)
        self._require(source, [settings.target, *names])
        path = Path(settings.path)
        text_format = complete_format(path, self._given_format)
        kinds, date_notes = self._columns_by_kind(source)
        notes = [*format_notes(path, text_format, self._given_format), *date_notes]
        classes = self._classes(source[settings.target])
        y = self._targets(source, classes)
        train = row_splits(len(source), settings, y if classes else None)["train"]
        columns = InputColumns(
            tuple(kinds.numeric),
            DateColumns.of(source, kinds.dates, train, settings.path),
            CategoricalColumns.of(source.iloc[train], tuple(kinds.categorical)),
        )
        notes += [
            f"column {name!r} holds {len(columns.categorical.categories[name])} distinct texts in "
            f"{len(train)} training rows, so it identifies rows rather than categories: put it "
            "under data.ignore, or under data.numeric if it holds numbers"
            for name in columns.categorical.identifiers(len(train))
        ]
        notes += _few_values(source, columns, classes, settings.target)
        numbers = columns.numbers(source, settings.path)[train]
        for note in notes:
            _warn(f"{settings.path}: {note}")
        return TableProperties(
            columns=columns,
            numeric=NumericColumns.of(columns.numeric_names, numbers, settings.path),
            classes=classes,
            head=Head(len(classes)) if classes else Head.of_numbers(y[train]),
            text_format=text_format,
        )

    def _data_of(self, source: "pd.DataFrame", config: Config) -> Data:
        classes = self.properties.classes
        x, y = self.inputs_of(source), self._targets(source, classes)
        parts: dict[str, Any] = {
            name: ({column: array[rows] for column, array in x.items()}, y[rows])
            for name, rows in row_splits(len(y), self.settings, y if classes else None).items()
        }
        return Data(**parts)

    def _require(self, table: "pd.DataFrame", names: list[str]) -> None:
        columns = [str(name) for name in table.columns]
        if missing := [name for name in dict.fromkeys(names) if name not in columns]:
            text = ", ".join(f"{name!r}{did_you_mean(name, columns)}" for name in missing)
            raise WorkloadError(
                f"{self.settings.path} has no column {text}; its columns are {', '.join(columns)}"
            )

    def _columns_by_kind(self, table: "pd.DataFrame") -> "tuple[_Kinds, list[str]]":
        """Return the columns by kind, and notes on those that are dates."""
        settings, kinds = self.settings, _Kinds()
        unclear = []
        for name in settings.columns or tuple(str(name) for name in table.columns):
            if name == settings.target or name in settings.ignore:
                continue
            if name in settings.numeric:
                kinds.numeric.append(name)
            elif name in settings.categorical:
                kinds.categorical.append(name)
            elif name in settings.dates or looks_like_dates(table[name]):
                date_format = settings.dates.get(name)
                formats = [date_format] if date_format else date_formats_of(table[name])
                if len(formats) == 1:
                    kinds.dates[name] = formats[0]
                else:
                    unclear.append(_unclear_dates(table[name], formats))
            else:
                is_categorical = self._is_categorical(table[name])
                (kinds.categorical if is_categorical else kinds.numeric).append(name)
        if not any((kinds.numeric, kinds.categorical, kinds.dates)):
            raise WorkloadError(
                f"{settings.path} has no column besides the target {settings.target!r} to predict "
                f"it from{'; ' if unclear else ''}{'; '.join(unclear)}"
            )
        guessed = [
            f"{name} ({kinds.dates[name]})" for name in kinds.dates if name not in settings.dates
        ]
        notes = [*unclear]
        if guessed:
            notes.append(
                f"the columns {', '.join(guessed)} hold dates and are used as such; put a column "
                "under data.categorical or data.ignore if it should not be"
            )
        return kinds, notes

    def _is_categorical(self, column: "pd.Series[Any]") -> bool:
        from pandas import CategoricalDtype
        from pandas.api import types

        if types.is_bool_dtype(column):
            return True
        if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
            return False
        if isinstance(column.dtype, CategoricalDtype) or types.is_string_dtype(column):
            return True
        is_object = types.is_object_dtype(column)
        scalars = column.dropna().map(lambda value: isinstance(value, str | bool | int | float))
        if is_object and scalars.all():
            return True
        wrong = column.dropna().iloc[0] if is_object else column.dtype
        raise WorkloadError(
            f"{self.settings.path}: column {column.name!r} holds neither numbers nor text, but "
            f"{wrong!r}: put it under ignore, or convert it to numbers first"
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
        values = target.to_numpy()
        if is_number and not is_classification(values, self.settings.task):
            return ()
        if is_number and (fractions := values != np.floor(values)).any():
            raise WorkloadError(
                f"{path}: the target {name!r} must hold classes (task: classification), but "
                f"{format_rows(fractions, 1)} hold(s) {values[fractions][0]}: set task: regression"
            )
        texts = texts_of(target)
        classes = [str(text) for text in texts.unique()]
        if len(classes) < 2:
            raise WorkloadError(
                f"{path}: the target {name!r} holds {classes[0]!r} in all rows: there is nothing "
                "to learn"
            )
        if len(classes) > max(_FEW_CLASSES, len(target) / 2):
            raise WorkloadError(
                f"{path}: the target {name!r} holds {len(classes)} different values in "
                f"{len(target)} rows, which are not classes: name another column, or fix "
                f"the values that are not numbers, such as {classes[0]!r}"
            )
        return tuple(sorted(classes, key=float) if is_number else sorted(classes))

    def _targets(self, table: "pd.DataFrame", classes: tuple[str, ...]) -> Any:
        import pandas as pd

        target = self.settings.target
        if not classes:
            return numbers_of(table, (target,), self.settings.path)[:, 0].astype(np.float32)
        texts = texts_of(table[target]).to_numpy(object)
        return pd.Index(classes, dtype=object).get_indexer(texts).astype(np.int32)


def _standardized(numbers: Any, columns: NumericColumns) -> list[Any]:
    """Return imputed and standardized numbers, and missing-value indicators if needed."""
    import keras

    missing = keras.ops.isnan(numbers)
    filled = keras.ops.where(missing, columns.medians.astype(np.float32), numbers)
    parts = [keras.layers.Normalization(mean=columns.means, variance=columns.variances)(filled)]
    if columns.missing.any():
        is_missing = keras.ops.cast(missing, "float32")
        # Constant 0 for columns without missing values in the training rows.
        parts.append(is_missing * columns.missing.astype(np.float32))
    return parts
