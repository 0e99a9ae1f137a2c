"""Rows of a data set, validated, converted to training dtypes and joined."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, leaves_of, map_nested, spec_of
from tune_tf.errors import WorkloadError
from tune_tf.workload import Data


@dataclass(frozen=True, eq=False)
class Batches:
    """A ``tf.data.Dataset`` or ``keras.utils.PyDataset``, of ``steps`` batches per epoch if given.

    ``class_weight`` is that of its rows, as in ``keras.Model.fit``.
    """

    dataset: Any
    steps: int | None = None
    class_weight: Mapping[int, float] | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows, at least one, and validation rows, if any.

    Either are ``(x, y)`` or ``(x, y, sample_weight)``, nested arrays with rows on the first axis,
    or :class:`Batches`, whose number of rows is given as 0.
    """

    train: tuple[Nested, ...] | Batches
    validation: tuple[Nested, ...] | Batches | None
    num_train: int
    num_validation: int

    @property
    def spec(self) -> tuple[Any, ...]:
        """Shapes and dtypes of all arrays, for comparing two data sets."""
        return _spec(self.train), _spec(self.validation)


def rows_of(data: Data, *, floatx: str = "float32") -> Rows:
    """Validate a workload's data and convert them to training dtypes.

    Floats become ``floatx``, as in ``keras.Model.fit``; class weights become sample weights of the
    training rows.

    Raises:
        WorkloadError: A set is empty or not a tuple of arrays, or its parts differ in length.
    """
    if not isinstance(data, Data):
        raise WorkloadError(
            f"load_data must return tune_tf.Data(train, validation), not {type(data).__name__}"
        )
    train, num_train = _checked("train", data.train, data.steps_per_epoch, floatx)
    if data.class_weight is not None:
        train = _with_class_weight(train, data.class_weight, floatx)
    if data.validation is None:
        return Rows(train, None, num_train, 0)
    validation, num_validation = _checked(
        "validation", data.validation, data.validation_steps, floatx
    )
    return Rows(train, validation, num_train, num_validation)


def is_dataset(part: Any) -> bool:
    """Return whether a part is a ``tf.data.Dataset`` or a ``keras.utils.PyDataset``."""
    tf, keras = (sys.modules.get(name) for name in ("tensorflow", "keras"))
    return (tf is not None and isinstance(part, tf.data.Dataset)) or (
        keras is not None and isinstance(part, keras.utils.PyDataset)
    )


def has_datasets(data: Data) -> bool:
    """Return whether any part is a ``tf.data.Dataset`` or a ``keras.utils.PyDataset``."""
    return isinstance(data, Data) and any(map(is_dataset, (data.train, data.validation)))


def shareable(data: Any, *, floatx: str = "float32") -> Data | None:
    """Return a workload's data without test rows, arrays in training dtypes, for other processes.

    Returns None if a part does not consist of arrays.
    """
    if not isinstance(data, Data):
        return None
    parts = data.train, data.validation
    if not all(isinstance(part, tuple | None) for part in parts):
        return None
    try:
        train, validation = (
            part and map_nested(np.ascontiguousarray, _converted(part, floatx)) for part in parts
        )
    except WorkloadError:  # told when the trial reads it
        return None
    return replace(data, train=train, validation=validation, test=None)


def first_rows(part: Nested, num_rows: int) -> Nested:
    """Return the first rows of nested arrays."""
    return map_nested(lambda leaf: leaf[:num_rows], part)


def _checked(name: str, part: Any, steps: int | None, floatx: str) -> tuple[Any, int]:
    setting = "steps_per_epoch" if name == "train" else "validation_steps"
    if steps is not None and (not isinstance(steps, int | np.integer) or steps < 1):
        raise WorkloadError(f"Data.{setting} must be an integer of at least 1, not {steps!r}")
    if is_dataset(part):
        return Batches(part, steps), 0
    if steps is not None:
        raise WorkloadError(
            f"Data.{setting} counts batches of a tf.data.Dataset or keras.utils.PyDataset, but "
            f"Data.{name} is a {type(part).__name__}: leave it out, or return fewer rows"
        )
    if not isinstance(part, tuple) or len(part) not in (2, 3):
        raise WorkloadError(
            f"Data.{name} must be a tuple (x, y) or (x, y, sample_weight) of arrays, a "
            "tf.data.Dataset (Dataset.from_generator for a generator) or a "
            f"keras.utils.PyDataset, not {type(part).__name__}"
        )
    part = _converted(part, floatx)
    return part, _num_rows(name, part)


def _num_rows(name: str, part: tuple[Nested, ...]) -> int:
    lengths = {label: len(leaf) for label, leaf in leaves_of(name, part)}
    if not lengths:
        raise WorkloadError(f"Data.{name} holds no arrays")
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{label} has {length}" for label, length in lengths.items())
        raise WorkloadError(f"the parts of Data.{name} differ in number of rows: {text}")
    num_rows = next(iter(lengths.values()))
    if num_rows == 0:
        raise WorkloadError(f"Data.{name} is empty: load_data returned no rows")
    return num_rows


def _converted(part: tuple[Nested, ...], floatx: str) -> tuple[Nested, ...]:
    def converted(leaf: Any) -> "np.ndarray[Any, Any]":
        array = np.asarray(leaf)
        if array.ndim == 0 or array.dtype == object:
            raise WorkloadError(
                f"data must be arrays with rows on the first axis, not {type(leaf).__name__} "
                f"of type {array.dtype}"
            )
        return array.astype(floatx, copy=False) if array.dtype.kind == "f" else array

    return tuple(map_nested(converted, item) for item in part)


def _with_class_weight(
    train: tuple[Nested, ...] | Batches, class_weight: Mapping[int, float], floatx: str
) -> tuple[Nested, ...] | Batches:
    if isinstance(train, Batches):
        return replace(train, class_weight=class_weight)
    if len(train) == 3:
        raise WorkloadError(
            "Data has both class_weight and sample_weight: multiply them into sample_weight"
        )
    return (*train, class_weights(train[1], class_weight, floatx))


def class_weights(
    y: Nested, class_weight: Mapping[int, float], floatx: str
) -> "np.ndarray[Any, Any]":
    """Return the class weight of each row, shape ``[rows]``.

    Raises:
        WorkloadError: There are several outputs.
    """
    if not isinstance(y, np.ndarray):
        raise WorkloadError("class_weight needs a single output; use sample_weight instead")
    classes, position = np.unique(class_labels(y), return_inverse=True)
    weights = np.array([class_weight.get(int(label), 1.0) for label in classes], floatx)
    return weights[position]


def class_labels(y: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return integer labels, shape ``[rows]``, from labels or one-hot rows."""
    if y.ndim > 1:
        y = y.argmax(-1) if y.shape[-1] > 1 else y[..., 0]
    return np.round(y).astype(np.int64)


def _spec(part: tuple[Nested, ...] | Batches | None) -> Any:
    if isinstance(part, Batches):
        return "batches"  # its stream compares the rest
    leaves = leaves_of("", part) if part else ()
    return tuple((label, leaf.shape, str(leaf.dtype)) for label, leaf in leaves)


def all_to_train(data: Data, *, floatx: str = "float32") -> Data:
    """Return the data with the validation rows added to the training rows.

    Rows are weighted if those of ``Data.train`` are; validation rows without a weight count as 1.
    ``class_weight`` applies to all rows. Test rows stay separate.

    Raises:
        WorkloadError: The parts are not arrays, or their rows differ in form.
    """
    if not isinstance(data, Data) or data.validation is None:
        return data
    why = "training and validation rows are concatenated as arrays"
    refuse_data_sets(data, why, or_else=", or retrain with --on train")
    rows = rows_of(replace(data, class_weight=None), floatx=floatx)
    parts: list[Any] = [rows.train, rows.validation]
    train = [joined_rows(name, [part[i] for part in parts]) for i, name in enumerate("xy")]
    if len(parts[0]) == 3:
        train.append(joined_weights(parts, floatx))
    return replace(data, train=tuple(train), validation=None, groups=None)


def refuse_data_sets(data: Data, why: str, *, or_else: str = "") -> None:
    """Reject data that are not arrays, with the reason ``why`` and another remedy.

    Raises:
        WorkloadError: A part is not a tuple of arrays.
    """
    for name in ("train", "validation"):
        part = getattr(data, name)
        if not isinstance(part, tuple | type(None)):
            raise WorkloadError(
                f"{why}, but Data.{name} is a "
                f"{'data set' if is_dataset(part) else type(part).__name__}: "
                f"let load_data return tuples (x, y) of arrays{or_else}"
            )


def joined_rows(name: str, parts: list[Nested]) -> Nested:
    """Concatenate the nested arrays of one or two parts.

    Raises:
        WorkloadError: The parts differ in nesting, row shape or dtype.
    """
    if len(parts) == 1:
        return parts[0]
    first, second = (spec_of(first_rows(part, 1)) for part in parts)
    if first != second:
        raise WorkloadError(
            "the rows of Data.train and Data.validation must have one form to be concatenated, "
            f"but the first row of {name} is {first} in one and {second} in the other"
        )
    return map_nested(lambda *leaves: np.concatenate(leaves), *parts)


def joined_weights(parts: list[tuple[Nested, ...]], floatx: str) -> "np.ndarray[Any, Any]":
    """Return the sample weights of all rows, shape ``[rows]``, 1 in parts without any."""
    weights = []
    for part in parts:
        num_rows = len(next(leaves_of("", part))[1])
        weights.append(part[2] if len(part) == 3 else np.ones(num_rows, floatx))
    return np.concatenate(weights)
