"""The model of a table as callers see it: with the columns of the table as its inputs."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.workloads.table_columns import CategoricalColumns, NumericColumns

if TYPE_CHECKING:
    import keras

# Texts that stand for none of a file: NUL is in no CSV file, and in no category that is written.
_UNKNOWN = "\0unknown"
_MISSING = "\0missing"


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

    columns: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    if numeric.names:
        numbers = [_input(name, "float32") for name in numeric.names]
        columns |= dict(zip(numeric.names, numbers, strict=True))
        inputs["numeric"] = keras.ops.stack(numbers, axis=-1)
    if categorical.categories:
        codes = []
        for name, first, known in categorical.ranges():
            columns[name] = _input(name, "string")
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


def _input(column: str, dtype: str) -> Any:
    import keras

    # Keras takes no slash in a name. Callers know an input by the name of its column.
    return keras.Input((), name=column.replace("/", "_"), dtype=dtype)
