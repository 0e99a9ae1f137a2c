"""Samples of a workload for measurements: a subset of its rows, or another batch size."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import write_atomically
from tune_tf.data import Pipeline, first_rows, rows_of
from tune_tf.data.nested import num_bytes
from tune_tf.data.rows import has_datasets, is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload, with_mixin

BUILDS_MODEL = "builds_model"
"""Count of processes that build a model; other processes may only load data."""


@dataclass(frozen=True)
class TrialSample:
    """First batches of a workload's training rows, and validation rows in proportion.

    ``counts_folder`` is the folder on a node where each of the trial's processes writes its counts.
    ``cuts_datasets`` says whether to sample data sets too, whose number of rows is unknown, so that
    times cannot be extrapolated.
    """

    max_batches: int
    counts_folder: str
    cuts_datasets: bool = False

    def cut(self, data: Data, batch_size: int) -> tuple[Data, Mapping[str, int]]:
        """Return the sampled data, unchanged if their rows are not known, and counts."""
        if self.cuts_datasets and has_datasets(data):
            steps = [
                min(self.max_batches, before or self.max_batches) if is_dataset(part) else before
                for part, before in (
                    (data.train, data.steps_per_epoch),
                    (data.validation, data.validation_steps),
                )
            ]
            return replace(data, steps_per_epoch=steps[0], validation_steps=steps[1]), {}
        if not isinstance(data, Data) or not isinstance(data.train, tuple | Pipeline):
            return data, {}
        rows = rows_of(replace(data, class_weight=None))
        num_train = min(rows.num_train, self.max_batches * batch_size)
        share = num_train / rows.num_train
        counts = {
            "num_rows": num_train,
            "total_rows": rows.num_train,
            "validation_rows": rows.num_validation,
            "left_out_bytes": round(
                (1 - share) * (_array_bytes(data.train) + _array_bytes(data.validation))
            ),
        }
        if share == 1:
            return data, counts
        num_validation = max(1, round(share * rows.num_validation)) if rows.num_validation else 0
        groups = data.groups
        if groups is not None:
            begin = rows.num_train
            groups = [*groups[:num_train], *groups[begin : begin + num_validation]]
        train = _first_rows(data.train, num_train)
        validation = _first_rows(data.validation, num_validation) if num_validation else None
        return replace(data, train=train, validation=validation, groups=groups), counts


@dataclass(frozen=True)
class ScalingSample:
    """First training rows of a workload, without validation, for scaling measurements.

    It is a share ``data_fraction`` of the ``max_rows`` that count as all data. Without a
    ``counts_folder``, the trial's processes write no counts.
    """

    batch_size: int
    max_rows: int
    data_fraction: float
    counts_folder: str | None = None

    def cut(self, data: Data, batch_size: int) -> tuple[Data, Mapping[str, int]]:
        """Return the sampled data, and counts of rows.

        Raises:
            WorkloadError: The data are not arrays, or have fewer rows than a batch.
        """
        if not isinstance(data, Data) or not isinstance(data.train, tuple):
            raise WorkloadError(
                "scaling is measured on data in arrays, Data(train=(x, y)): return arrays from "
                "load_data, even if only part of the data"
            )
        total = rows_of(Data(data.train)).num_train
        num_rows = max(1, round(min(total, self.max_rows) * self.data_fraction))
        if num_rows < batch_size:
            raise WorkloadError(
                f"a batch of {batch_size} rows is more than the {num_rows} rows of data"
            )
        counts = {"num_rows": num_rows, "total_rows": total}
        return Data(train=first_rows(data.train, num_rows), class_weight=data.class_weight), counts


class _Sampled:
    """Mixin that makes a workload train on a sample; precedes its class."""

    _tune_tf_sample: TrialSample | ScalingSample

    def load_data(self, config: Config) -> Data:
        data = super().load_data(config)  # type: ignore[misc]
        batch_size = self.global_batch_size(config)  # type: ignore[attr-defined]
        rows, counts = self._tune_tf_sample.cut(data, batch_size)
        write_process_counts(self._tune_tf_sample.counts_folder, counts)
        return rows

    def build_model(self, config: Config) -> Any:
        write_process_counts(self._tune_tf_sample.counts_folder, {BUILDS_MODEL: 1})
        return super().build_model(config)  # type: ignore[misc]

    def callbacks(self, config: Config) -> tuple[()]:
        """Return no callbacks: they may end the trial, wait for validation, or write files."""
        return ()


class _FixedBatch(_Sampled):
    _tune_tf_sample: ScalingSample

    def global_batch_size(self, config: Config) -> int:
        return self._tune_tf_sample.batch_size


class _InputOnly(_FixedBatch):
    """Mixin whose training step only selects and transforms the rows of a batch."""

    def train_step(self, model: Any, batch: Any) -> Mapping[str, Any]:
        import tensorflow as tf  # only the measured process loads it

        with tf.control_dependencies(tf.nest.flatten(batch)):
            model.optimizer.iterations.assign_add(0)  # an op without effect would be pruned
            return {"loss": tf.zeros([])}


def sample_workload(
    workload: Workload, sample: TrialSample | ScalingSample, *, input_only: bool = False
) -> Workload:
    """Return a copy of a workload that trains on a sample, without callbacks.

    With ``input_only``, which requires a :class:`ScalingSample`, training skips the model.
    """
    mixin = _FixedBatch if isinstance(sample, ScalingSample) else _Sampled
    return with_mixin(_InputOnly if input_only else mixin, workload, _tune_tf_sample=sample)


def _first_rows(part: Any, num_rows: int) -> Any:
    if not isinstance(part, Pipeline):
        return first_rows(part, num_rows)
    return replace(part, rows=first_rows(part.rows, num_rows))


def _array_bytes(part: Any) -> int:
    """Return the bytes of arrays; 0 for a pipeline, whose rows a trial does not keep in memory."""
    return num_bytes(part) if isinstance(part, tuple) else 0


def read_process_counts(folder: str) -> dict[int, dict[str, int]]:
    """Return the counts of the processes on this machine, by process id."""
    paths = Path(folder).glob("*.json")
    return {int(path.stem): json.loads(path.read_text()) for path in paths}


def write_process_counts(folder: str | None, counts: Mapping[str, int]) -> None:
    """Add to the counts of this process, unless the folder is None or of another machine."""
    if folder is None or not Path(folder).is_dir():
        return
    path = Path(folder, f"{os.getpid()}.json")
    earlier = json.loads(path.read_text()) if path.exists() else {}
    write_atomically(path, json.dumps({**earlier, **counts}), on_disk=False)
