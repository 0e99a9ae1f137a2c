"""Cross-validation within a trial."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.parallelism.setting_errors import is_count
from tune_tf.parallelism.subtasks import Subtasks


@dataclass(frozen=True)
class Folds(Subtasks):
    """Cross-validation: one config trained several times on different rows.

    The rows of ``Data.train`` and ``Data.validation`` together are split into folds. Each fold
    validates one model, which is trained on the others. All trials of a sweep use the same folds. A
    trial reports the mean and the standard deviation of each metric over the folds.

    Args:
        num_folds: Number of folds, at least 2.
        stratified: Whether to keep the class shares about equal in all folds; for models with one
            output of class labels.
        grouped: Whether to keep the rows of a group (see ``Data.groups``) in one fold.
        num_repeats: Number of splits with different orders; a trial trains ``num_folds *
            num_repeats`` models.
        num_devices: As in :class:`Subtasks`.
        task_retries: As in :class:`Subtasks`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "folds"
    subtask: ClassVar[str] = "fold"

    num_folds: int = 5
    stratified: bool = False
    grouped: bool = False
    num_repeats: int = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = []
        if not is_count(self.num_folds) or self.num_folds < 2:
            errors.append(f"num_folds must be an integer of at least 2, not {self.num_folds!r}")
        errors += [
            f"{name} must be true or false, not {value!r}"
            for name in ("stratified", "grouped")
            if not isinstance(value := getattr(self, name), bool)
        ]
        if not is_count(self.num_repeats):
            errors.append(f"num_repeats must be an integer of at least 1, not {self.num_repeats!r}")
        self.refuse(errors + self.setting_errors())

    @property
    def num_subtasks(self) -> int:
        """Number of folds of all repeats."""
        return self.num_folds * self.num_repeats
