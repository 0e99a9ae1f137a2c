"""Validation and splitting of arrays x and y into data sets."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Data
from tune_tf.workloads.data_settings import DataSettings, TaskKind
from tune_tf.workloads.file_stamp import FileStamp
from tune_tf.workloads.head import Head, class_numbers, format_rows, is_classification
from tune_tf.workloads.own_data import DataProperties
from tune_tf.workloads.split import Split

PARTS = ("train", "validation", "test")
_BLOCK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class ArrayProperties(DataProperties):
    """Shape and dtype of a row of x, and the output layer of the model."""

    shape: tuple[int, ...]
    dtype: str
    head: Head


def input_dtype(dtype: Any, where: str) -> str:
    """Return the dtype of x in training: uint8 stays, all other numbers become float32.

    Raises:
        WorkloadError: The values are not numbers.
    """
    if dtype.kind == "O":
        raise WorkloadError(
            f"{where} holds objects: its rows are ragged or hold text; all must have the same shape"
        )
    if dtype.kind not in "biuf":
        raise WorkloadError(f"{where} holds {dtype}, but a model takes numbers")
    return "uint8" if dtype == np.uint8 else "float32"


def check_lengths(lengths: dict[str, int]) -> None:
    """Reject x and y of different lengths or without rows.

    Raises:
        WorkloadError: Names both arrays.
    """
    if len(set(lengths.values())) > 1:
        described = " and ".join(f"{name} has {length} rows" for name, length in lengths.items())
        raise WorkloadError(f"{described}: each row of x needs one of y")
    if not any(lengths.values()):
        raise WorkloadError(f"{' and '.join(lengths)} have no rows")


def split_rows_of(ys: dict[str, Any], settings: DataSettings, task: TaskKind) -> dict[str, Any]:
    """Return the rows of ``train`` that each part gets if the files have no validation part.

    The result includes ``train`` itself; it is empty if nothing is to be split.
    """
    if "validation" in ys:
        return {}
    if "test" in ys:
        settings = settings.model_copy(update={"test_share": 0.0})
    y = ys["train"]
    stratified = y.dtype.kind in "biu" and y.size == len(y) and is_classification(y, task)
    split = Split.of(len(y), settings, y.reshape(-1) if stratified else None)
    rows = {"train": split.train, "validation": split.validation, "test": split.test}
    return {name: numbers for name, numbers in rows.items() if len(numbers)}


def array_properties(
    stamp: FileStamp | None,
    shape: tuple[int, ...],
    dtype: str,
    ys: dict[str, Any],
    settings: DataSettings,
    *,
    task: TaskKind,
    num_classes: int | None,
    names: dict[str, str],
) -> ArrayProperties:
    """Return the properties of arrays.

    Args:
        stamp: Stamp of their files.
        shape: Shape of a row of x.
        dtype: Dtype of x in training.
        ys: Targets by part; at least ``train``.
        settings: Shares of the split.
        task: Kind of the target.
        num_classes: None to derive it from y.
        names: Name of each part's y in messages.

    Raises:
        WorkloadError: A target does not fit the task.
    """
    y = ys["train"]
    if not is_classification(y, "classification" if num_classes else task):
        rows = split_rows_of(ys, settings, task).get("train", slice(None))
        head = Head.of_numbers(_numbers(y, names["train"])[rows])
    else:
        highest = max(class_numbers(each, num_classes, names[n])[1] for n, each in ys.items())
        head = Head(num_classes or highest)
    return ArrayProperties(stamp, shape, dtype, head)


def data_of(
    xs: dict[str, Any],
    ys: dict[str, Any],
    properties: ArrayProperties,
    settings: DataSettings,
    *,
    task: TaskKind,
    names: dict[str, str],
) -> Data:
    """Return the data sets of the inputs ``xs`` and targets ``ys`` by part.

    ``names`` has the names for messages: of targets by part, of inputs by ``"x_train"`` etc.

    Raises:
        WorkloadError: x contains NaN or infinity; names array and rows.
    """
    parts: dict[str, Any] = {}
    for name, x in xs.items():
        _refuse_non_finite(x, names[f"x_{name}"])
        target = (
            _numbers(ys[name], names[name])
            if properties.head.num_classes is None
            else class_numbers(ys[name], properties.head.num_classes, names[name])[0]
        )
        parts[name] = (np.asarray(x).astype(properties.dtype, copy=False), target)
    x, y = parts["train"]
    chosen = split_rows_of(ys, settings, task)
    parts |= {name: (x[rows], y[rows]) for name, rows in chosen.items()}
    return Data(**parts)


def _numbers(y: Any, where: str) -> Any:
    if y.dtype.kind not in "biuf" or y.ndim > 2:
        raise WorkloadError(
            f"{where} is {y.dtype} of shape {list(y.shape)}, but numbers to predict need shape "
            "[rows] or [rows, numbers]"
        )
    wrong = ~np.isfinite(y.reshape(len(y), -1)).all(axis=1)
    if wrong.any():
        raise WorkloadError(f"{where} holds NaN or infinity in {format_rows(wrong)}")
    return y.astype(np.float32)


def _refuse_non_finite(x: Any, where: str) -> None:
    if x.dtype.kind != "f":
        return
    wrong = np.zeros(len(x), bool)
    for start in range(0, len(x), _BLOCK_ROWS):  # a mask of all x would take a quarter of its size
        block = np.asarray(x[start : start + _BLOCK_ROWS])
        wrong[start : start + len(block)] = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
    if wrong.any():
        raise WorkloadError(
            f"{where} holds NaN or infinity in {format_rows(wrong)}: fix or remove these rows"
        )
