"""Sample of a workload for measurements: its first batches, without callbacks."""

from dataclasses import dataclass, replace
from typing import Any

from tune_tf.data import first_rows, rows_of
from tune_tf.data.rows import has_datasets, is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload, with_mixin


@dataclass(frozen=True)
class Sample:
    """First batches of the training rows, and validation rows in proportion.

    Args:
        max_batches: Most batches of the workload's own size; None for all.
        share: Share of the rows of these batches.
        batch_factor: Ratio of the batch size to the workload's own.
    """

    max_batches: int | None = None
    share: float = 1.0
    batch_factor: float = 1.0

    def cut(self, data: Data, batch_size: int) -> Data:
        """Return the sampled data.

        Raises:
            WorkloadError: The data have no batches of another size.
        """
        if self.max_batches is None or not isinstance(data, Data):
            return data
        if has_datasets(data):
            if self.share != 1 or self.batch_factor != 1:
                raise WorkloadError("the data sets of load_data have batches of their own")
            return replace(
                data,
                steps_per_epoch=self._steps(data.train, data.steps_per_epoch),
                validation_steps=self._steps(data.validation, data.validation_steps),
            )
        rows = rows_of(replace(data, class_weight=None))
        num_train = max(1, round(min(rows.num_train, self.max_batches * batch_size) * self.share))
        if num_train == rows.num_train:
            return data
        num_validation = rows.num_validation and max(
            1, round(num_train / rows.num_train * rows.num_validation)
        )
        train = first_rows(data.train, num_train)
        validation = first_rows(data.validation, num_validation) if num_validation else None
        return replace(data, train=train, validation=validation, groups=None)  # whatever the folds

    def _steps(self, part: Any, steps: int | None) -> int | None:
        if self.max_batches is None or not is_dataset(part):
            return steps
        return min(self.max_batches, steps or self.max_batches)


class _Sampled:
    """Mixin that makes a workload train on a sample; precedes its class."""

    _tune_tf_sample: Sample

    def load_data(self, config: Config) -> Data:
        data = super().load_data(config)  # type: ignore[misc]
        return self._tune_tf_sample.cut(data, super().global_batch_size(config))  # type: ignore[misc]

    def global_batch_size(self, config: Config) -> int:
        own_batch_size: int = super().global_batch_size(config)  # type: ignore[misc]
        return max(1, round(own_batch_size * self._tune_tf_sample.batch_factor))

    def callbacks(self, config: Config) -> tuple[()]:
        """Return no callbacks: they may end the trial, wait for validation, or write files."""
        return ()


def sample_workload(workload: Workload, sample: Sample) -> Workload:
    """Return a copy of a workload that trains on a sample, without callbacks."""
    return with_mixin(_Sampled, workload, _tune_tf_sample=sample)
