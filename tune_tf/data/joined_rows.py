"""Training and validation rows joined into one data set."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, is_sequence, leaves_of
from tune_tf.data.rows import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.workload import Data


def all_to_train(data: Data, *, floatx: str = "float32") -> Data:
    """Return the data with the validation rows added to the training rows.

    Rows are weighted if those of ``Data.train`` are; validation rows without a weight count as 1.
    ``class_weight`` applies to all rows. Test rows stay separate.

    Raises:
        WorkloadError: The parts are not arrays, or their rows differ in form.
    """
    if not isinstance(data, Data) or data.validation is None:
        return data
    refuse_pipelines(data, "training and validation rows are concatenated as arrays")
    rows = rows_of(replace(data, class_weight=None), floatx=floatx)
    parts: list[Any] = [rows.train, rows.validation]
    x, y = (joined_rows(name, [part[at] for part in parts]) for at, name in enumerate("xy"))
    weights = joined_weights(parts, False, floatx) if len(parts[0]) == 3 else None
    train = (x, y) if weights is None else (x, y, weights)
    return replace(data, train=train, validation=None, groups=None)


def refuse_pipelines(data: Data, why: str) -> None:
    """Reject data that are not arrays, with the reason ``why``.

    Raises:
        WorkloadError: A part is not a tuple of arrays.
    """
    for name in ("train", "validation"):
        part = getattr(data, name)
        if not isinstance(part, tuple | type(None)):
            raise WorkloadError(
                f"{why}, but Data.{name} is a {type(part).__name__}: "
                "let load_data return tuples (x, y) of arrays"
            )


def joined_rows(name: str, parts: list[Nested]) -> Nested:
    """Concatenate the nested arrays of one or two parts.

    Raises:
        WorkloadError: The parts differ in nesting, row shape or dtype.
    """
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    specs = [
        {label: (leaf.shape[1:], leaf.dtype) for label, leaf in leaves_of(name, part)}
        for part in parts
    ]
    if specs[0] != specs[1]:
        texts = [
            ", ".join(f"{dtype}{list(shape)}" for shape, dtype in spec.values()) for spec in specs
        ]
        raise WorkloadError(
            "the rows of Data.train and Data.validation must have one form to be concatenated, "
            f"but a row of {name} is {texts[0]} in one and {texts[1]} in the other"
        )
    if isinstance(first, Mapping):
        return {key: joined_rows(name, [value, second[key]]) for key, value in first.items()}
    if is_sequence(first):
        return type(first)(joined_rows(name, [*pair]) for pair in zip(first, second, strict=True))
    return np.concatenate(parts)


def joined_weights(parts: list[tuple[Nested, ...]], by_class: bool, floatx: str) -> Any:
    """Return the sample weights of all rows, shape ``[rows]``; None if there are none."""
    own = [
        None if len(part) == 2 or (by_class and number == 0) else part[2]
        for number, part in enumerate(parts)
    ]
    if all(weights is None for weights in own):
        return None
    return np.concatenate(
        [
            np.ones(len(next(leaves_of("", part))[1]), floatx) if weights is None else weights
            for part, weights in zip(parts, own, strict=True)
        ]
    )
