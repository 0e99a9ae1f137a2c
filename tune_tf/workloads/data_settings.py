"""Settings common to all workloads on users' own data, and the split of rows by them."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.config.error_text import short_repr
from tune_tf.config.settings import Settings
from tune_tf.errors import WorkloadError


def _texts(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names like [a, b], not {short_repr(value)}")
    wrong = [each for each in value if not isinstance(each, str)]
    if wrong:
        raise ValueError(f"must hold names, not {short_repr(wrong[0])}: put it in quotes")
    return tuple(value)


Names = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Ordered names."""

Text = Annotated[str, Field(min_length=1)]
"""Non-empty text."""

TaskKind = Literal["auto", "classification", "regression"]
"""Kind of the target; ``auto`` infers it from the target's values."""


class DataSettings(Settings):
    """How rows are divided, for any data.

    Args:
        validation_share: Share of the rows to validate on, 0 for none; as good as the same share of
            each class.
        test_share: Share of the rows that no trial sees.
        seed: Of the choice of these rows, the same for all trials.
    """

    paths: ClassVar[tuple[str, ...]] = ("path",)
    """Names of the settings that are paths."""

    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("test_share")
    @classmethod
    def _leaves_some(cls, share: float, info: ValidationInfo) -> float:
        validation = info.data.get("validation_share", 0)
        if share + validation >= 1:
            raise ValueError(
                f"is {share:g} and validation_share is {validation:g}: together they must be "
                "less than 1 to leave rows to train on"
            )
        return share

    def resolved(self, base_dir: Path) -> Self:
        """Return the settings with absolute paths, relative ones being relative to ``base_dir``."""
        absolute = {
            name: str(base_dir.absolute() / Path(value).expanduser())
            for name in self.paths
            if (value := getattr(self, name)) is not None
        }
        return self.model_copy(update=absolute)


def rows_of_parts(
    num_rows: int, settings: DataSettings, classes: Any = None, parts: Collection[str] = ()
) -> "dict[str, np.ndarray[Any, Any]]":
    """Return the numbers of the rows of each part, ascending, by the shares and seed of settings.

    If ``classes`` of shape ``[rows]`` are given, each part gets its share of each class, to within
    one row. The parts are ``train``, ``validation`` and ``test``, as far as they have rows. If the
    data have test rows of their own (in ``parts``), none are split off; if they have validation
    rows, nothing is split and the result is empty.

    Raises:
        WorkloadError: A part with a share above 0, or the training part, would be empty.
    """
    if "validation" in parts:
        return {}
    test_share = 0.0 if "test" in parts else settings.test_share
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(num_rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    num_validation = round(num_rows * settings.validation_share)
    is_test = _evenly(num_rows, round(num_rows * test_share), rng)
    rest = order[~is_test]
    is_validation = _evenly(len(rest), min(num_validation, len(rest)), rng)
    found = {
        "train": rest[~is_validation],
        "validation": rest[is_validation],
        "test": order[is_test],
    }
    wanted = {"validation": settings.validation_share, "test": test_share}
    empty = [name for name, rows in found.items() if not len(rows) and wanted.get(name, 1)]
    if empty:
        raise WorkloadError(
            f"{num_rows} row(s) are too few: with validation_share "
            f"{settings.validation_share:g} and test_share {test_share:g} there are "
            f"none for {' and '.join(empty)}"
        )
    return {name: np.sort(rows) for name, rows in found.items() if len(rows)}


def _evenly(num_rows: int, num_picked: int, rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """Return a mask that picks rows at even distances from a random start."""
    steps = np.floor(np.arange(num_rows + 1) * num_picked / max(1, num_rows) + rng.random())
    return np.diff(steps) > 0
