"""Input example for a served model, from a workload's data."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from tune_tf.data import Pipeline
from tune_tf.training.input.per_example import seen_by_model
from tune_tf.training.input.stream import first_rows_of
from tune_tf.workload import Config, Workload

_MAX_ROWS = 5
_MAX_NUMBERS = 20_000  # the example is stored as text


def input_example(workload: Workload, config: Config, model: keras.Model) -> Any:
    """Return a few validation rows, or training rows if there are none, as input of a model.

    Returns:
        An array of shape [rows, ...], or a mapping of such arrays by the names of the model's
        inputs; None for rows with another structure.
    """
    data = workload.load_data(config)
    part = data.train if data.validation is None else data.validation
    batch = first_rows_of(part, "validation", _MAX_ROWS)
    if isinstance(part, tuple | Pipeline):
        batch = seen_by_model(workload, config, batch, training=False)
    x = batch[0] if isinstance(batch, tuple) else batch
    if x is None:
        return None
    arrays = _named(x, model)
    if arrays is None:
        return None
    size = sum(_numbers_a_row(array) for array in _leaves(arrays))
    num_rows = max(1, min(_MAX_ROWS, _MAX_NUMBERS // max(1, size)))
    if isinstance(arrays, dict):
        return {name: _rows(array, num_rows) for name, array in arrays.items()}
    return _rows(arrays, num_rows)


def _named(x: Any, model: keras.Model) -> Any:
    """Return one array, or several by name; None for a nested structure without names."""
    if isinstance(x, Mapping):
        named = {str(name): value for name, value in x.items()}
    elif isinstance(x, tuple | list) and not np.isscalar(x[0]) and _is_several(x, model):
        named = {tensor.name: value for tensor, value in zip(model.inputs, x, strict=True)}
    else:
        return x
    return None if any(isinstance(v, Mapping | tuple) for v in named.values()) else named


def _is_several(x: Any, model: keras.Model) -> bool:
    return len(getattr(model, "inputs", None) or ()) == len(x)


def _leaves(arrays: Any) -> list[Any]:
    return list(arrays.values()) if isinstance(arrays, dict) else [arrays]


def _numbers_a_row(array: Any) -> int:
    return int(np.prod(np.shape(array)[1:], dtype=np.int64))


def _rows(array: Any, num_rows: int) -> "np.ndarray[Any, Any]":
    rows = np.asarray(array[:num_rows])
    # Training casts to the Keras float type, whatever the type of the data.
    return rows.astype(keras.config.floatx()) if rows.dtype.kind == "f" else rows
