"""Arrays x and y as the parts of a data set, checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Data
from tune_tf.workloads.data_settings import DataSettings, Task
from tune_tf.workloads.file_stamp import FileStamp
from tune_tf.workloads.head import Head, class_numbers, format_rows, is_classification
from tune_tf.workloads.own_data import DataProperties
from tune_tf.workloads.split import Split

PARTS = ("train", "validation", "test")
_BLOCK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class ArrayProperties(DataProperties):
    """What is known of arrays.

    Args:
        shape: Of a row of x.
        dtype: Of x, as the model takes it.
        head: What is predicted.
    """

    shape: tuple[int, ...]
    dtype: str
    head: Head


def input_dtype(dtype: Any, where: str) -> str:
    """Return the type that x has in training: bytes as they are, all other numbers as float32.

    Raises:
        WorkloadError: They are no numbers.
    """
    if dtype.kind == "O":
        raise WorkloadError(
            f"{where} holds objects: its rows are ragged, or hold text; all must have one shape"
        )
    if dtype.kind not in "biuf":
        raise WorkloadError(f"{where} holds {dtype}, but a model takes numbers")
    return "uint8" if dtype == np.uint8 else "float32"


def check_lengths(lengths: dict[str, int]) -> None:
    """Refuse parts of different lengths, and those without rows.

    Args:
        lengths: Rows by what they are called; one x and one y.

    Raises:
        WorkloadError: Tells both.
    """
    if len(set(lengths.values())) > 1:
        described = " and ".join(f"{name} has {length} rows" for name, length in lengths.items())
        raise WorkloadError(f"{described}: a row of x needs one of y")
    if not any(lengths.values()):
        raise WorkloadError(f"{' and '.join(lengths)} have no rows")


def divided(ys: dict[str, Any], settings: DataSettings, task: Task) -> dict[str, Any]:
    """Return which rows of ``train`` each part has, where files do not say it themselves.

    Args:
        ys: Targets by part; at least ``train``.
        settings: The shares of what is not there.
        task: Whether classes get their share in each part.

    Returns:
        Row numbers by part, for the parts that are taken from ``train`` and for ``train``; empty
        where nothing is to be divided.
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
    task: Task,
    num_classes: int | None,
    names: dict[str, str],
) -> ArrayProperties:
    """Return what is known of arrays.

    Args:
        stamp: Of their files.
        shape: Of a row of x.
        dtype: That of x in training.
        ys: Targets by part; at least ``train``.
        settings: How rows are divided.
        task: What is learnt.
        num_classes: Classes that there are; None for as many as y says.
        names: What the y of each part is called in messages.

    Raises:
        WorkloadError: A target is not as the task has it.
    """
    y = ys["train"]
    if not is_classification(y, "classification" if num_classes else task):
        rows = divided(ys, settings, task).get("train", slice(None))
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
    task: Task,
    names: dict[str, str],
) -> Data:
    """Return the data sets of arrays.

    Args:
        xs: Inputs by part.
        ys: Targets by part.
        properties: What is known of them.
        settings: How rows are divided.
        task: What is learnt.
        names: What ``x`` and the targets of each part are called in messages; the inputs by
            ``"x_train"`` and so on.

    Raises:
        WorkloadError: x holds NaN or infinity; tells array and rows.
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
    chosen = divided(ys, settings, task)
    parts |= {name: (x[rows], y[rows]) for name, rows in chosen.items()}
    return Data(**parts)


def _numbers(y: Any, where: str) -> Any:
    if y.dtype.kind not in "biuf" or y.ndim > 2:
        raise WorkloadError(
            f"{where} is {y.dtype} of shape {list(y.shape)}, but numbers to predict have the shape "
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
    for start in range(0, len(x), _BLOCK_ROWS):  # a mask of all numbers would be a quarter of x
        block = np.asarray(x[start : start + _BLOCK_ROWS])
        wrong[start : start + len(block)] = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
    if wrong.any():
        raise WorkloadError(
            f"{where} holds NaN or infinity in {format_rows(wrong)}: mend or leave out these rows"
        )
