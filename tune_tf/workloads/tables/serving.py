"""Serving model of a table, with one input per column."""

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.workloads.tables.columns import CategoricalColumns, NumericColumns

if TYPE_CHECKING:
    import keras

# NUL occurs in no CSV file, so these equal no category.
_UNKNOWN = "\0unknown"
_MISSING = "\0missing"

_OF_OPERATIONS = re.compile(r"(stack|add|cast|string_lookup)(_\d+)?")
"""Names that Keras gives to the operations between the columns and the model."""


def model_of_columns(
    model: "keras.Model", numeric: NumericColumns, categorical: CategoricalColumns
) -> "keras.Model":
    """Return a model with one input per column, named after it, of shape ``[rows]``.

    Numbers are float32, NaN if missing. Categories are strings, empty if missing; those that no
    training row has get the code of unknown ones. The weights are copies, and the model is not
    compiled.
    """
    import keras

    kinds = dict.fromkeys(numeric.names, "float32") | dict.fromkeys(
        categorical.categories, "string"
    )
    columns: dict[str, Any] = {}
    for column, name in _input_names(kinds, model.name).items():
        columns[column] = keras.Input((), name=name, dtype=kinds[column])
    inputs: dict[str, Any] = {}
    if numeric.names:
        inputs["numeric"] = keras.ops.stack([columns[name] for name in numeric.names], axis=-1)
    if categorical.categories:
        codes = []
        for name, first, known in categorical.ranges():
            lookup = keras.layers.StringLookup(
                # In the order of the codes: unknown, missing, then the known ones.
                vocabulary=[_MISSING if "" in known else "", *known],
                oov_token=_UNKNOWN,
                mask_token=None,
            )
            codes.append(lookup(columns[name]) + first)
        inputs["categorical"] = keras.ops.cast(keras.ops.stack(codes, axis=-1), "int32")
    same = keras.models.clone_model(model)  # without the optimizer, which inference does not need
    same.set_weights(model.get_weights())
    with warnings.catch_warnings():  # about input names that differ from the column names
        warnings.simplefilter("ignore", UserWarning)
        return keras.Model(columns, same(inputs), name=model.name)


def rows_of_columns(
    rows: Mapping[str, Any], numeric: NumericColumns, categorical: CategoricalColumns
) -> dict[str, Any]:
    """Convert rows of a model's inputs to the inputs of :func:`model_of_columns`.

    ``numeric`` and ``categorical`` in ``rows`` both have the shape ``[rows, columns]``.
    """
    found = {name: rows["numeric"][:, i] for i, name in enumerate(numeric.names)}
    for i, (name, first, known) in enumerate(categorical.ranges()):
        texts = [_UNKNOWN, _MISSING if "" in known else "", *known]
        found[name] = np.array(texts, object)[rows["categorical"][:, i] - first]
    return found


def _input_names(columns: Iterable[str], model: str) -> dict[str, str]:
    """Return the Keras name of each column's input: the column's own if Keras accepts it.

    Keras accepts no slash and no duplicates, not even of an operation's name.
    """
    found: dict[str, str] = {}
    for column in columns:
        name = column.replace("/", "_")
        while name in found.values() or name == model or _OF_OPERATIONS.fullmatch(name):
            name += "_"
        found[column] = name
    return found
