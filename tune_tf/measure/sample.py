"""Sample of a workload for measurements: its first batches, without callbacks."""

from dataclasses import replace
from typing import Any

from tune_tf.data import first_rows, rows_of
from tune_tf.data.rows import has_datasets, is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload, with_mixin


class _Sampled:
    """Mixin that makes a workload train on a sample; precedes its class."""

    _tune_tf_sample: tuple[int | None, float]

    def load_data(self, config: Config) -> Data:
        data: Data = super().load_data(config)  # type: ignore[misc]
        max_batches, batch_factor = self._tune_tf_sample
        if max_batches is None or not isinstance(data, Data):
            return data
        if batch_factor != 1 and has_datasets(data):
            raise WorkloadError("the data sets of load_data have batches of their own")
        return _first_batches(data, max_batches, super().global_batch_size(config))  # type: ignore[misc]

    def global_batch_size(self, config: Config) -> int:
        own_batch_size: int = super().global_batch_size(config)  # type: ignore[misc]
        return max(1, round(own_batch_size * self._tune_tf_sample[1]))

    def callbacks(self, config: Config) -> tuple[()]:
        """Return no callbacks: they may end the trial, wait for validation, or write files."""
        return ()


def sample_workload(
    workload: Workload, max_batches: int | None = None, batch_factor: float = 1.0
) -> Workload:
    """Return a copy of a workload that trains on a sample, without callbacks.

    Args:
        workload: The workload.
        max_batches: Most training batches of the workload's own size, with validation rows in
            proportion; None for all.
        batch_factor: Ratio of the batch size to the workload's own.
    """
    return with_mixin(_Sampled, workload, _tune_tf_sample=(max_batches, batch_factor))


def _first_batches(data: Data, max_batches: int, batch_size: int) -> Data:
    if has_datasets(data):

        def steps(part: Any, own: int | None) -> int | None:
            return min(max_batches, own or max_batches) if is_dataset(part) else own

        return replace(
            data,
            steps_per_epoch=steps(data.train, data.steps_per_epoch),
            validation_steps=steps(data.validation, data.validation_steps),
        )
    rows = rows_of(replace(data, class_weight=None))
    num_train = max_batches * batch_size
    if num_train >= rows.num_train:
        return data
    num_validation = round(num_train / rows.num_train * rows.num_validation)
    validation = (
        first_rows(data.validation, max(1, num_validation)) if rows.num_validation else None
    )
    train = first_rows(data.train, num_train)
    return replace(data, train=train, validation=validation, groups=None)  # whatever the folds
