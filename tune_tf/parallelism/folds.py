"""Cross-validation within a trial."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.parallelism.setting_errors import is_count
from tune_tf.parallelism.subtasks import Subtasks


@dataclass(frozen=True)
class Folds(Subtasks):
    """Cross-validation: one config trained several times, each time on other rows.

    The rows of ``Data.train`` and ``Data.validation`` together are split into folds; each fold is
    held out once, to validate a model that is trained on the others. All trials of a sweep have the
    same folds. A trial reports the mean over the folds of each metric.

    Args:
        num_folds: Parts, at least 2.
        stratified: Whether every fold has the classes in about the same shares; for models with
            one output of class labels.
        grouped: Whether rows of one group (see ``Data.groups``) stay together in one fold.
        num_repeats: How often the rows are split again, in another order; there are
            ``num_folds * num_repeats`` models then.
        num_devices: As in :class:`Subtasks`.
        task_retries: As in :class:`Subtasks`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
    """

    kind: ClassVar[str] = "folds"
    subtask: ClassVar[str] = "fold"

    num_folds: int = 5
    stratified: bool = False
    grouped: bool = False
    num_repeats: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        errors = []
        if not is_count(self.num_folds) or self.num_folds < 2:
            errors.append(f"num_folds must be a whole number of at least 2, not {self.num_folds!r}")
        errors += [
            f"{name} must be true or false, not {value!r}"
            for name in ("stratified", "grouped")
            if not isinstance(value := getattr(self, name), bool)
        ]
        if not is_count(self.num_repeats):
            errors.append(
                f"num_repeats must be a whole number of at least 1, not {self.num_repeats!r}"
            )
        self.refuse(errors + self.setting_errors())

    @property
    def num_subtasks(self) -> int:
        """Folds of all repeats."""
        return self.num_folds * self.num_repeats
