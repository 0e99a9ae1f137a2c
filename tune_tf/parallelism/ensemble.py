"""Ensemble of models of one config, with different seeds."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.parallelism.setting_errors import is_count
from tune_tf.parallelism.subtasks import Subtasks


@dataclass(frozen=True)
class Ensemble(Subtasks):
    """Ensemble: one config trained several times on the same rows with different seeds.

    It measures the variance of a metric due to the seed: a trial reports the mean and the standard
    deviation of each metric over the members. Member 0 uses the seed of a single-model trial.

    Args:
        num_members: Number of models, at least 2.
        num_devices: As in :class:`Subtasks`.
        task_retries: As in :class:`Subtasks`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "ensemble"
    subtask: ClassVar[str] = "member"

    num_members: int = 5

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = []
        if not is_count(self.num_members) or self.num_members < 2:
            errors.append(f"num_members must be an integer of at least 2, not {self.num_members!r}")
        self.refuse(errors + self.setting_errors())

    @property
    def num_subtasks(self) -> int:
        """Number of members."""
        return self.num_members
