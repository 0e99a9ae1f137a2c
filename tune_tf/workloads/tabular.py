"""Workload on the columns of a CSV or Parquet file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from tune_tf.errors import WorkloadError, did_you_mean
from tune_tf.workload import Config, Data
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
    NumericColumns,
    model_of_columns,
    numbers_of,
    read_table,
    rows_of_columns,
    texts_of,
)

if TYPE_CHECKING:
    import pandas as pd

_FEW_CLASSES = 20  # classes that are accepted for any number of rows


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
        separator: Character between values of a CSV file; None for a comma, or a tab in ``.tsv``.
            Example: ``;``.
    """

    path: Text
    target: Text
    task: TaskKind = "auto"
    columns: Names | None = None
    ignore: Names = ()
    numeric: Names = ()
    categorical: Names = ()
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None

    @field_validator("columns", "ignore", "numeric", "categorical")
    @classmethod
    def _check_names(cls, names: Names | None, info: ValidationInfo) -> Names | None:
        target = info.data.get("target")
        if target is not None and target in (names or ()):
            raise ValueError(f"holds the target {target!r}: leave it out here")
        return names

    @field_validator("categorical")
    @classmethod
    def _check_categorical(cls, names: Names, info: ValidationInfo) -> Names:
        if shared := sorted({*names} & {*info.data.get("numeric", ())}):
            raise ValueError(f"and numeric both hold {', '.join(shared)}: put each in only one")
        return names


@dataclass(frozen=True, eq=False)
class TableProperties:
    """Properties of a table; without ``classes``, in the order of the outputs, for regression."""

    numeric: NumericColumns
    categorical: CategoricalColumns
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
        names, categorical = self.properties.numeric.names, self.properties.categorical
        self._require(table, [*names, *categorical.categories])
        inputs = {}
        if names:
            inputs["numeric"] = numbers_of(table, names, self.settings.path).astype(np.float32)
        if categorical.categories:
            inputs["categorical"] = categorical.codes(table)
        return inputs

    def serving_model(self, model: Any, config: Config) -> Any:
        """Return a model with one input per column."""
        return model_of_columns(model, self.properties.numeric, self.properties.categorical)

    def serving_rows(self, rows: Any) -> Any:
        """Return rows by column, as inputs of :meth:`serving_model`."""
        return rows_of_columns(rows, self.properties.numeric, self.properties.categorical)

    def _read(self) -> "tuple[pd.DataFrame, FileStamp]":
        path = existing_file(self.settings.path, "data.path")
        stamp = FileStamp.of([path])
        return read_table(path, self.settings.separator), stamp

    def _properties_of(self, source: "pd.DataFrame") -> TableProperties:
        settings = self.settings
        columns = (*(settings.columns or ()), *settings.ignore)
        columns += (*settings.numeric, *settings.categorical)
        self._require(source, [settings.target, *columns])
        numeric, categorical = self._columns_by_kind(source)
        classes = self._classes(source[settings.target])
        y = self._targets(source, classes)
        train = row_splits(len(source), settings, y if classes else None)["train"]
        numbers = numbers_of(source, numeric, settings.path)[train]
        return TableProperties(
            numeric=NumericColumns.of(numeric, numbers, settings.path),
            categorical=CategoricalColumns.of(source.iloc[train], categorical),
            classes=classes,
            head=Head(len(classes)) if classes else Head.of_numbers(y[train]),
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

    def _columns_by_kind(self, table: "pd.DataFrame") -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of numeric and of categorical columns."""
        settings = self.settings
        numeric: list[str] = []
        categorical: list[str] = []
        for name in settings.columns or tuple(str(name) for name in table.columns):
            if name == settings.target or name in settings.ignore:
                continue
            is_categorical = name in settings.categorical or (
                name not in settings.numeric and self._is_categorical(table[name])
            )
            (categorical if is_categorical else numeric).append(name)
        if not numeric and not categorical:
            raise WorkloadError(
                f"{settings.path} has no column besides the target {settings.target!r} to predict "
                "it from"
            )
        return tuple(numeric), tuple(categorical)

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
