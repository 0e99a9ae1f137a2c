"""Cross-validation folds of a data set."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tune_tf.data.nested import Nested, leaves_of, map_nested
from tune_tf.data.rows import (
    Rows,
    class_labels,
    class_weights,
    joined_rows,
    joined_weights,
    refuse_pipelines,
    rows_of,
)
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Folds
from tune_tf.workload import Data


class FoldedRows:
    """Cross-validation folds of ``Data.train`` and ``Data.validation``, made by scikit-learn.

    A fold's training rows are weighted if those of ``Data.train`` are, its validation rows if those
    of ``Data.validation`` are; rows without a weight count as 1. ``class_weight`` applies to
    training rows only. The seed must be the same for all trials that are compared.

    Raises:
        WorkloadError: The rows cannot be split this way, or are not arrays.
    """

    def __init__(self, data: Data, folds: Folds, *, seed: int, floatx: str = "float32") -> None:
        if isinstance(data, Data):
            refuse_pipelines(data, "folds select rows by index")
        rows = rows_of(data, floatx=floatx)
        parts: list[Any] = [part for part in (rows.train, rows.validation) if part is not None]
        self._x = joined_rows("x", [part[0] for part in parts])
        self._y = joined_rows("y", [part[1] for part in parts])
        self._num_rows = rows.num_train + rows.num_validation
        if data.class_weight is not None:
            parts[0] = parts[0][:2]  # its weights are those of the classes
        weights = joined_weights(parts, floatx)
        self._train_weights = weights if len(parts[0]) == 3 else None
        self._validation_weights = weights if len(parts[-1]) == 3 else None
        if data.class_weight is not None:
            self._train_weights = class_weights(self._y, data.class_weight, floatx)
        groups = _groups(data, self._num_rows) if folds.grouped else None
        self._held_out = [
            held_out.astype(np.int32) for held_out in _split(folds, seed, self._y, groups)
        ]

    def rows(self, index: int) -> Rows:
        """Return the rows of a fold, with its held-out rows as validation rows.

        Folds are numbered from 0 across repeats.
        """
        held_out = self._held_out[index]
        train = np.setdiff1d(np.arange(self._num_rows), held_out)
        return Rows(
            train=self._part(train, self._train_weights),
            validation=self._part(held_out, self._validation_weights),
            num_train=len(train),
            num_validation=len(held_out),
        )

    def _part(self, numbers: Any, weights: Any) -> tuple[Nested, ...]:
        part = (self._x, self._y) if weights is None else (self._x, self._y, weights)
        return tuple(map_nested(lambda leaf: leaf[numbers], nested) for nested in part)


def _groups(data: Data, num_rows: int) -> Any:
    if data.groups is None:
        raise WorkloadError(
            "parallelism.grouped is true but Data.groups is None: let load_data return the group "
            "of each row, first those of train, then those of validation"
        )
    groups = np.asarray(data.groups)
    if groups.shape != (num_rows,):
        raise WorkloadError(
            f"Data.groups must hold one group for each row of train and validation, shape "
            f"({num_rows},), not {groups.shape}"
        )
    return groups


def _split(folds: Folds, seed: int, y: Nested, groups: Any) -> "Iterator[np.ndarray[Any, Any]]":
    """Yield the held-out row numbers of each fold."""
    num_rows = len(next(leaves_of("", y))[1])
    if folds.num_folds > num_rows:
        raise WorkloadError(
            f"parallelism.num_folds is {folds.num_folds} but there are only {num_rows} row(s): "
            "use fewer folds"
        )
    if groups is not None and folds.num_folds > (num_groups := len(np.unique(groups))):
        raise WorkloadError(
            f"parallelism.num_folds is {folds.num_folds} but Data.groups holds {num_groups} "
            "group(s), which are never split: use fewer folds"
        )
    classes = _classes(folds, y) if folds.stratified else np.zeros(num_rows, int)
    for repeat in range(folds.num_repeats):
        splitter = _splitter(folds, seed + repeat)
        for train, held_out in splitter.split(np.empty((num_rows, 0)), classes, groups):
            if not len(train) or not len(held_out):
                raise WorkloadError(
                    "the groups cannot be divided into that many folds with about the same share "
                    "of each class: a fold would be empty; use fewer folds"
                )
            yield held_out


def _splitter(folds: Folds, seed: int) -> Any:
    from sklearn import model_selection  # late: it takes most of a second

    if folds.grouped and not folds.stratified and folds.num_repeats == 1:
        # Unshuffled, its folds are of about equal size.
        return model_selection.GroupKFold(folds.num_folds)
    kinds = {
        (False, False): model_selection.KFold,
        (True, False): model_selection.StratifiedKFold,
        (False, True): model_selection.GroupKFold,
        (True, True): model_selection.StratifiedGroupKFold,
    }
    kind = kinds[folds.stratified, folds.grouped]
    return kind(folds.num_folds, shuffle=True, random_state=seed % 2**32)


def _classes(folds: Folds, y: Nested) -> "np.ndarray[Any, Any]":
    advice = "leave out parallelism.stratified"
    if not isinstance(y, np.ndarray):
        raise WorkloadError(f"stratified folds need a single output of class labels: {advice}")
    is_one_hot = y.ndim > 1 and y.shape[-1] > 1
    if not is_one_hot and np.any(y != np.round(y)):
        raise WorkloadError(f"stratified folds need class labels, not real numbers: {advice}")
    classes = class_labels(y)
    labels, counts = np.unique(classes, return_counts=True)
    if counts.min() < folds.num_folds:
        rare = int(counts.argmin())
        raise WorkloadError(
            f"parallelism.num_folds is {folds.num_folds} but class {labels[rare]} has only "
            f"{counts[rare]} row(s): every fold needs a row of each class; use fewer folds, or "
            f"{advice}"
        )
    return classes
