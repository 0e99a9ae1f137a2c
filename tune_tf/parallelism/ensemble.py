"""Several models of one config, from different seeds."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.parallelism.setting_errors import is_count
from tune_tf.parallelism.subtasks import Subtasks


@dataclass(frozen=True)
class Ensemble(Subtasks):
    """One config trained several times on the same rows, each time from another seed.

    Tells how much of a metric is luck: a trial reports the mean over the members of each metric,
    and its spread. Member 0 has the seed that the trial would have by itself.

    Args:
        num_members: Models, at least 2.
        num_devices: As in :class:`Subtasks`.
        task_retries: As in :class:`Subtasks`.
        micro_batches: As in :class:`Mirrored`.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
    """

    kind: ClassVar[str] = "ensemble"
    subtask: ClassVar[str] = "member"

    num_members: int = 5

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        errors = []
        if not is_count(self.num_members) or self.num_members < 2:
            errors.append(
                f"num_members must be a whole number of at least 2, not {self.num_members!r}"
            )
        self.refuse(errors + self.setting_errors())

    @property
    def num_subtasks(self) -> int:
        """The members."""
        return self.num_members
