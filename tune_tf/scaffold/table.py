"""Draft of a sweep on a table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.scaffold.draft import (
    DENSE_SPACE,
    SHARES,
    Draft,
    Line,
    abbreviate,
    flow,
    path_line,
    scalar,
    sweep_name,
)
from tune_tf.workloads.table import holds_dates, looks_like_numbers, read_table
from tune_tf.workloads.tabular import TableProperties, TabularMLP

if TYPE_CHECKING:
    import pandas as pd


def table_draft(
    path: Path, target: str | None, path_text: str, read_csv: Mapping[str, Any]
) -> Draft:
    """Return the draft for a table.

    Raises:
        InvalidSettingsError: The target is missing or unknown.
        WorkloadError: The table is invalid; the message names column and row.
    """
    table = read_table(path, read_csv)
    columns = [str(name) for name in table.columns]
    if target not in columns:
        error = "which column is to be predicted? Pass --target COLUMN"
        if target is not None:
            error = f"{path} has no column {target!r}{did_you_mean(target, columns)}"
        raise InvalidSettingsError(f"{error}; the columns of {path} are {', '.join(columns)}")
    identifiers = [name for name in columns if name != target and _identifies_rows(table[name])]
    if len(identifiers) == len(columns) - 1:
        identifiers = []  # no other column to predict from
    workload = TabularMLP(
        path=str(path), target=target, ignore=identifiers, read_csv=dict(read_csv)
    )
    properties = workload.properties
    num_columns = len(properties.columns.names)
    numeric = (*properties.columns.numbers, *properties.columns.dates)
    categorical = tuple(properties.columns.categories)
    ignore = Line("ignore", "[id]", "columns to leave out", is_commented_out=True)
    if identifiers:
        ignore = Line("ignore", flow(identifiers), "left out: they only identify rows")
    data = [
        path_line("path", path_text),
        Line("target", scalar(target), _target_comment(properties, len(table))),
        Line("task", properties.head.task, _task_comment(properties)),
        ignore,
        Line("categorical", "[postcode]", "numbers that are categories", is_commented_out=True),
        *(
            [Line("read_csv", json.dumps(read_csv), "how pandas reads the file")]
            if read_csv
            else []
        ),
        *SHARES,
    ]
    space, inputs = [*DENSE_SPACE], []
    if numeric:
        inputs.append(f"numeric: floats of shape [{len(numeric)}]: {abbreviate(numeric)}")
    if categorical:
        space.append(Line("embedding_dim", "{choice: [4, 8, 16]}", "of each category"))
        inputs.append(
            f"categorical: codes of shape [{len(categorical)}]: {abbreviate(categorical)}"
        )
    return Draft(
        name=sweep_name(path.name.partition(".")[0]),
        description=f"A perceptron on the {num_columns} columns of "
        f"{path.name} that predict {target!r}.",
        workload="tune_tf.workloads.tabular:TabularMLP",
        data=tuple(data),
        task=properties.head.task,
        space=tuple(space),
        num_rows=len(table),
        inputs=tuple(inputs),
    )


def _identifies_rows(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds row numbers or unique texts."""
    from pandas.api import types

    if holds_dates(column):
        return False
    if types.is_integer_dtype(column):
        return len(column) > 1 and bool((column.diff().dropna() == 1).all())
    is_text = types.is_string_dtype(column) and not looks_like_numbers(column)
    return is_text and len(column) > 1 and column.nunique() == len(column)


def _target_comment(properties: TableProperties, num_rows: int) -> str:
    if properties.classes:
        classes = properties.classes
        return f"{len(classes)} classes in {num_rows:,} rows: {abbreviate(classes)}"
    head = properties.head
    return f"numbers in {num_rows:,} rows: {head.means[0]:.4g} on average, +- {head.scales[0]:.3g}"


def _task_comment(properties: TableProperties) -> str:
    if properties.classes:
        return "guessed: text, or few integers; `regression` if these are quantities"
    return "guessed: many different numbers; `classification` if these are classes"
