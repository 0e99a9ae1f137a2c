"""Workload on the columns of a CSV or Parquet file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from tune_tf.errors import WorkloadError, did_you_mean
from tune_tf.workload import Config, Data
from tune_tf.workloads.head import Head, dense_layers, format_rows, is_classification
from tune_tf.workloads.own_data import (
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
        path: A CSV file with a header line, or a Parquet file.
        target: The column that is predicted.
        task: Whether it holds classes or numbers. ``auto``: classes if it holds text, true and
            false, or whole numbers with at most 20 values.
        columns: What it is predicted from; None for all other columns.
        ignore: Columns left out.
        numeric: Columns that hold numbers, whatever they look like.
        categorical: Columns that hold categories, such as numbers that are names.
        separator: What stands between two values of a CSV file; None for a comma, or a tab where
            the name ends in ``.tsv``.
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
    def _without_target(cls, names: Names | None, info: ValidationInfo) -> Names | None:
        target = info.data.get("target")
        if target is not None and target in (names or ()):
            raise ValueError(f"holds the target {target!r}: leave it out here")
        return names

    @field_validator("categorical")
    @classmethod
    def _one_kind(cls, names: Names, info: ValidationInfo) -> Names:
        both = sorted({*names} & {*info.data.get("numeric", ())})
        if both:
            raise ValueError(f"and numeric both hold {', '.join(both)}: put each in only one")
        return names


@dataclass(frozen=True, eq=False)
class TableProperties:
    """Properties of a table.

    Args:
        classes: Target values in the order of the model's outputs; empty for regression.
    """

    numeric: NumericColumns
    categorical: CategoricalColumns
    classes: tuple[str, ...]
    head: Head


class TabularMLP(SettingsWorkload[TabularSettings, TableProperties, "pd.DataFrame"]):
    """Perceptron on the columns of a table: numbers are standardized, categories embedded.

    The model takes numbers as in the file, NaN if missing. Its layers impute medians, add
    missing-value indicators and standardize, with statistics of the training rows only.
    :meth:`inputs_of` converts other rows to inputs; an exported model, or one logged to MLflow,
    takes the columns directly.

    Config values read: ``num_layers`` (default 1), ``width`` (128), ``dropout`` (0),
    ``embedding_dim`` (8), and those of :func:`~tune_tf.workloads.head.make_optimizer`.

    Args:
        settings: Fields of :class:`TabularSettings`.
    """

    settings_class = TabularSettings

    def build_model(self, config: Config) -> Any:
        """Return the compiled model."""
        import keras

        properties, inputs, parts = self.properties, {}, []
        if properties.numeric.names:
            numbers = keras.Input((len(properties.numeric.names),), name="numeric")
            inputs["numeric"] = numbers
            parts += _standardized(numbers, properties.numeric)
        if properties.categorical.categories:
            shape = (len(properties.categorical.categories),)
            codes = keras.Input(shape, name="categorical", dtype="int32")
            inputs["categorical"] = codes
            embedded = keras.layers.Embedding(
                properties.categorical.num_codes, int(config.get("embedding_dim", 8))
            )(codes)
            parts.append(keras.layers.Flatten()(embedded))
        features = keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]
        return properties.head.compiled(inputs, dense_layers(features, config), config)

    def inputs_of(self, table: "pd.DataFrame") -> dict[str, "np.ndarray[Any, Any]"]:
        """Return the model's inputs for the rows of a table with the same columns.

        Returns:
            ``numeric``, float32 of shape ``[rows, columns]`` with NaN for missing values, and
            ``categorical``, int32 codes of shape ``[rows, columns]``; each if there are such
            columns.

        Raises:
            WorkloadError: A column is missing, or a value is not a number; names column and row.
        """
        numeric, categorical = self.properties.numeric.names, self.properties.categorical
        self._require(table, [*numeric, *categorical.categories])
        inputs = {}
        if numeric:
            numbers = numbers_of(table, numeric, self.settings.path)
            inputs["numeric"] = numbers.astype(np.float32)
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

    def _found(self, source: "pd.DataFrame") -> TableProperties:
        settings, table = self.settings, source
        named = [*(settings.columns or ()), *settings.ignore]
        named += [*settings.numeric, *settings.categorical]
        self._require(table, [settings.target, *named])
        numeric, categorical = self._kinds(table)
        classes = self._classes(table[settings.target])
        y = self._targets(table, classes)
        train = row_splits(len(table), settings, y if classes else None)["train"]
        return TableProperties(
            numeric=NumericColumns.of(
                numeric, numbers_of(table, numeric, settings.path)[train], settings.path
            ),
            categorical=CategoricalColumns.of(table.iloc[train], categorical),
            classes=classes,
            head=Head(len(classes)) if classes else Head.of_numbers(y[train]),
        )

    def _data(self, source: "pd.DataFrame", config: Config) -> Data:
        classes = self.properties.classes
        x, y = self.inputs_of(source), self._targets(source, classes)
        parts: dict[str, Any] = {
            name: ({column: array[rows] for column, array in x.items()}, y[rows])
            for name, rows in row_splits(len(y), self.settings, y if classes else None).items()
        }
        return Data(**parts)

    def _require(self, table: "pd.DataFrame", names: list[str]) -> None:
        there = [str(name) for name in table.columns]
        lacking = [name for name in dict.fromkeys(names) if name not in there]
        if lacking:
            missing = ", ".join(f"{name!r}{did_you_mean(name, there)}" for name in lacking)
            raise WorkloadError(
                f"{self.settings.path} has no column {missing}; its columns are {', '.join(there)}"
            )

    def _kinds(self, table: "pd.DataFrame") -> tuple[tuple[str, ...], tuple[str, ...]]:
        settings = self.settings
        chosen = settings.columns or tuple(str(name) for name in table.columns)
        found: dict[str, list[str]] = {"numeric": [], "categorical": []}
        for name in chosen:
            if name == settings.target or name in settings.ignore:
                continue
            if name in settings.numeric:
                found["numeric"].append(name)
            elif name in settings.categorical:
                found["categorical"].append(name)
            else:
                found[self._kind(table[name])].append(name)
        if not any(found.values()):
            raise WorkloadError(
                f"{settings.path} has no column besides the target {settings.target!r} to predict "
                "it from"
            )
        return tuple(found["numeric"]), tuple(found["categorical"])

    def _kind(self, column: "pd.Series[Any]") -> str:
        from pandas import CategoricalDtype
        from pandas.api import types

        if types.is_bool_dtype(column):
            return "categorical"
        if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
            return "numeric"
        if isinstance(column.dtype, CategoricalDtype) or types.is_string_dtype(column):
            return "categorical"
        plain = column.dropna().map(lambda value: isinstance(value, str | bool | int | float))
        if types.is_object_dtype(column) and plain.all():
            return "categorical"
        wrong = column.dropna().iloc[0] if types.is_object_dtype(column) else column.dtype
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
        is_number = types.is_numeric_dtype(target) and not types.is_bool_dtype(target)
        if self.settings.task == "regression":
            return ()
        if is_number:
            values = target.to_numpy()
            if not is_classification(values, self.settings.task):
                return ()
            broken = values != np.floor(values)
            if broken.any():
                raise WorkloadError(
                    f"{path}: the target {name!r} must hold classes (task: classification), but "
                    f"{format_rows(broken, 1)} hold(s) {values[broken][0]}: set task: regression"
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
