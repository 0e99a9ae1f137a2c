"""Several independent models per trial: cross-validation folds and ensemble members."""

from dataclasses import field
from typing import Annotated, ClassVar

from pydantic import Field

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.parallelism import Count, Parallelism
from tune_tf.validation import validated


@validated
class Subtasks(Parallelism):
    """Base class of kinds whose trial consists of several models, each trained on one device.

    Args:
        num_devices: Number of models that train concurrently, each in a separate process with its
            CPUs or GPU. With 1, the models take turns in the trial's own process.
        micro_batches: Pieces into which a batch is split to save memory.

    Attributes:
        subtask: Name of one model in results and messages.
        splits_rows: Whether models differ by their rows; otherwise they differ by their seeds.
    """

    trainable: ClassVar[str] = "tune_tf.trainables.folds:FoldsTrainable"
    part: ClassVar[str] = "device"
    shares_gpus: ClassVar[bool] = True
    subtask: ClassVar[str]
    splits_rows: ClassVar[bool]

    num_devices: Count = field(default=1, kw_only=True)
    micro_batches: Count = field(default=1, kw_only=True)

    @property
    def num_subtasks(self) -> int:
        """Number of models of a trial."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """Number of processes."""
        return self.num_devices

    def __post_init__(self) -> None:
        """Refuse more devices than models."""
        if self.num_devices > self.num_subtasks:
            raise InvalidSettingsError(
                f"num_devices must be at most the number of {self.subtask}s ({self.num_subtasks}), "
                f"not {self.num_devices}: a {self.subtask} trains on one device"
            )


@validated
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
    """

    kind: ClassVar[str] = "folds"
    subtask: ClassVar[str] = "fold"
    splits_rows: ClassVar[bool] = True

    num_folds: Annotated[int, Field(ge=2)] = 5
    stratified: bool = False
    grouped: bool = False
    num_repeats: Count = 1

    @property
    def num_subtasks(self) -> int:
        """Number of folds of all repeats."""
        return self.num_folds * self.num_repeats


@validated
class Ensemble(Subtasks):
    """Ensemble: one config trained several times on the same rows with different seeds.

    It measures the variance of a metric due to the seed: a trial reports the mean and the standard
    deviation of each metric over the members. Member 0 uses the seed of a single-model trial.

    Args:
        num_members: Number of models, at least 2.
    """

    kind: ClassVar[str] = "ensemble"
    subtask: ClassVar[str] = "member"
    splits_rows: ClassVar[bool] = False

    num_members: Annotated[int, Field(ge=2)] = 5

    @property
    def num_subtasks(self) -> int:
        """Number of members."""
        return self.num_members
