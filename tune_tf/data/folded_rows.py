"""Cross-validation folds of a data set."""

import warnings
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
    refuse_data_sets,
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
            refuse_data_sets(data, "folds select rows by index")
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
        groups = data.groups if folds.grouped else None
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


def _split(folds: Folds, seed: int, y: Nested, groups: Any) -> "Iterator[np.ndarray[Any, Any]]":
    """Yield the held-out row numbers of each fold."""
    num_rows = len(next(leaves_of("", y))[1])
    classes = np.zeros(num_rows, int)
    if folds.stratified:
        if not isinstance(y, np.ndarray) or not _are_labels(y):
            raise WorkloadError(
                "stratified folds need a single output of class labels: leave out "
                "parallelism.stratified"
            )
        classes = class_labels(y)
    if folds.grouped and np.shape(groups) != (num_rows,):
        raise WorkloadError(
            "parallelism.grouped is true: let load_data return Data.groups, one group for each row "
            f"of train, then of validation, of shape ({num_rows},), not {np.shape(groups)}"
        )
    for repeat in range(folds.num_repeats):
        splitter = _splitter(folds, seed + repeat)
        try:
            with warnings.catch_warnings(action="error", category=UserWarning):
                splits = list(splitter.split(np.empty((num_rows, 0)), classes, groups))
        except (ValueError, UserWarning) as error:
            raise WorkloadError(
                f"the rows cannot be split into {folds.num_folds} folds: {error}"
            ) from error
        for train, held_out in splits:
            if not len(train) or not len(held_out):
                raise WorkloadError(
                    "the groups cannot be divided into that many folds with about the same share "
                    "of each class: a fold would be empty; use fewer folds"
                )
            yield held_out


def _are_labels(y: "np.ndarray[Any, Any]") -> bool:
    """Return whether an output holds class labels, which may be one-hot rows."""
    return (y.ndim > 1 and y.shape[-1] > 1) or bool(np.all(y == np.round(y)))


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
