"""Split of rows into training, validation and test rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workloads.data_settings import DataSettings


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the training, validation and test parts, ascending."""

    train: "np.ndarray[Any, Any]"
    validation: "np.ndarray[Any, Any]"
    test: "np.ndarray[Any, Any]"

    @classmethod
    def of(cls, num_rows: int, settings: DataSettings, classes: Any = None) -> Self:
        """Split rows by the shares and the seed of settings.

        If ``classes`` of shape ``[rows]`` are given, each part gets its share of each class, to
        within one row.

        Raises:
            WorkloadError: A part with a share above 0, or the training part, would be empty.
        """
        rng = np.random.default_rng(settings.seed)
        order = rng.permutation(num_rows)
        if classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        num_test = round(num_rows * settings.test_share)
        num_validation = round(num_rows * settings.validation_share)
        is_test = _evenly(num_rows, num_test, rng)
        rest = order[~is_test]
        is_validation = _evenly(len(rest), min(num_validation, len(rest)), rng)
        parts = {
            "train": rest[~is_validation],
            "validation": rest[is_validation],
            "test": order[is_test],
        }
        wanted = {"validation": settings.validation_share, "test": settings.test_share}
        empty = [name for name, part in parts.items() if not len(part) and wanted.get(name, 1)]
        if empty:
            raise WorkloadError(
                f"{num_rows} row(s) are too few: with validation_share "
                f"{settings.validation_share:g} and test_share {settings.test_share:g} there are "
                f"none for {' and '.join(empty)}"
            )
        return cls(**{name: np.sort(part) for name, part in parts.items()})


def _evenly(num_rows: int, num_picked: int, rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """Return a mask that picks rows at even distances from a random start."""
    steps = np.floor(np.arange(num_rows + 1) * num_picked / max(1, num_rows) + rng.random())
    return np.diff(steps) > 0
