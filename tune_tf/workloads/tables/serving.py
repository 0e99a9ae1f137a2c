"""Serving model of a table, with one input per column."""

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.workloads.tables.columns import CategoricalColumns, NumericColumns

if TYPE_CHECKING:
    import keras

# Texts that stand for none of a file: NUL is in no CSV file, and in no category that is written.
_UNKNOWN = "\0unknown"
_MISSING = "\0missing"

_OF_OPERATIONS = re.compile(r"(stack|add|cast|string_lookup)(_\d+)?")
"""What Keras calls the operations between the columns and the model."""


def model_of_columns(
    model: "keras.Model", numeric: NumericColumns, categorical: CategoricalColumns
) -> "keras.Model":
    """Return a model of a table's columns: each is an input of its name and of shape ``[rows]``.

    Numbers are float32, NaN where one is missing. Categories are strings, empty where one is
    missing; one that no training row had is taken as such. The weights are copies, and the model is
    not compiled.

    Args:
        model: Its inputs are ``numeric`` and ``categorical``, each where there are such columns.
        numeric: The columns of numbers.
        categorical: The columns of categories.
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
    same = keras.models.clone_model(model)  # without the optimizer, which nobody needs who predicts
    same.set_weights(model.get_weights())
    with warnings.catch_warnings():  # of names of inputs that are not those of the columns
        warnings.simplefilter("ignore", UserWarning)
        return keras.Model(columns, same(inputs), name=model.name)


def rows_of_columns(
    rows: Mapping[str, Any], numeric: NumericColumns, categorical: CategoricalColumns
) -> dict[str, Any]:
    """Return rows of a model's inputs as :func:`model_of_columns` takes them.

    Args:
        rows: ``numeric``, shape ``[rows, columns]``, and ``categorical``, codes of that shape.
        numeric: The columns of numbers.
        categorical: The columns of categories.
    """
    found = {name: rows["numeric"][:, i] for i, name in enumerate(numeric.names)}
    for i, (name, first, known) in enumerate(categorical.ranges()):
        texts = [_UNKNOWN, _MISSING if "" in known else "", *known]
        found[name] = np.array(texts, object)[rows["categorical"][:, i] - first]
    return found


def _input_names(columns: Iterable[str], model: str) -> dict[str, str]:
    """Return Keras' name for the input of each column: its own, where Keras can have that.

    Keras takes no slash in a name, and no name twice, those that it gives to operations included.
    Callers know an input by its column whatever Keras calls it.
    """
    found: dict[str, str] = {}
    for column in columns:
        name = column.replace("/", "_")
        while name in found.values() or name == model or _OF_OPERATIONS.fullmatch(name):
            name += "_"
        found[column] = name
    return found
