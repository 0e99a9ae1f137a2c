"""Form of a row (nesting, shapes and dtypes), equal for rows that can be stacked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, is_sequence, leaves_of, map_nested


@dataclass(frozen=True)
class ArrayForm:
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any

    def __str__(self) -> str:
        """Return ``float32[8, 8]``."""
        return f"{self.dtype}{list(self.shape)}"


def row_of(value: Any) -> Nested:
    """Convert the return value of a row function to nested arrays.

    Raises:
        TypeError: It is not an array, a number, or nested dicts or tuples of them.
    """
    row = map_nested(np.asarray, value)
    leaves = list(leaves_of("row", row))
    if not leaves or any(leaf.dtype == object for _, leaf in leaves):
        raise TypeError(
            "a row must be an array, a number, or nested dicts or tuples of them, "
            f"not {type(value).__name__}{'' if leaves else ' without any'}"
        )
    return row


def form_of(row: Nested) -> Nested:
    """Return the form of nested arrays, to compare with ``==``."""
    return map_nested(lambda leaf: ArrayForm(leaf.shape, leaf.dtype), row)


def format_form(form: Nested) -> str:
    """Format a form as text, such as ``float32[8, 8], int64[]``."""
    if isinstance(form, Mapping):
        return ", ".join(f"{key}: {format_form(value)}" for key, value in form.items())
    if is_sequence(form):
        return f"({', '.join(format_form(value) for value in form)})"
    return str(form)


def stacked(rows: Sequence[Nested]) -> Nested:
    """Stack rows of one form into nested arrays with rows on the first axis."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if is_sequence(first):
        return type(first)(stacked([row[i] for row in rows]) for i in range(len(first)))
    return np.stack(rows)


def allocate_rows(num_rows: int, form: Nested) -> Nested:
    """Allocate nested arrays for a number of rows; memory is used only as they are filled."""
    return map_nested(lambda leaf: np.empty((num_rows, *leaf.shape), leaf.dtype), form)


def fill(room: Nested, start: int, rows: Nested) -> None:
    """Copy stacked rows into nested arrays, starting at row ``start``."""
    if isinstance(room, Mapping):
        for key, part in room.items():
            fill(part, start, rows[key])
    elif is_sequence(room):
        for part, row in zip(room, rows, strict=True):
            fill(part, start, row)
    else:
        room[start : start + len(rows)] = rows
