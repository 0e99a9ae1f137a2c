"""A workload as it is measured: a part of its data, another batch size, nothing besides."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_tf.data import Pipeline, first_rows, rows_of
from tune_tf.data.nested import leaves_of
from tune_tf.data.pipeline import MEMORY
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload, mixed_in

TRAINS = "trains"
"""Left by a process that holds a model; data may be loaded in others, once for all of them."""


@dataclass(frozen=True)
class Part:
    """What of a workload is measured.

    Args:
        max_batches: Batches of training rows, the first ones; validation is cut alike.
        notes: Folder of a node in which each of its processes that trains leaves its id and what
            it found.
    """

    max_batches: int
    notes: str


class _Part:
    """Mixed in before a workload's own class."""

    _tune_tf_part: Part

    def load_data(self, config: Config) -> Data:
        """Return the first rows of training and validation data."""
        data = super().load_data(config)  # type: ignore[misc]
        part = self._tune_tf_part
        batch_size = self.global_batch_size(config)  # type: ignore[attr-defined]
        cut, facts = _cut(data, part.max_batches * batch_size)
        note(part.notes, facts)
        return cut

    def build_model(self, config: Config) -> Any:
        """Return the workload's model, and leave the id of this process."""
        note(self._tune_tf_part.notes, {TRAINS: 1})
        return super().build_model(config)  # type: ignore[misc]

    def callbacks(self, config: Config) -> tuple[()]:
        """Return none: they may end the trial, or write what only a trial should."""
        return ()


def part_of(workload: Workload, part: Part) -> Workload:
    """Return a workload as it is to be measured; the user's is left as it is."""
    return mixed_in(_Part, workload, _tune_tf_part=part)


def _cut(data: Data, max_rows: int) -> tuple[Data, Mapping[str, int]]:
    """Return the first rows of data, and what is known of all of them.

    Data that have no rows before they are read, such as batches for ``fit``, stay as they are.
    """
    if not isinstance(data, Data) or not isinstance(data.train, tuple | Pipeline):
        return data, {}
    rows = rows_of(replace(data, class_weight=None))
    share = min(1.0, max_rows / rows.num_train)
    facts = {
        "num_rows": min(rows.num_train, max_rows),
        "total_rows": rows.num_train,
        "left_out_bytes": round((1 - share) * (_bytes(data.train) + _bytes(data.validation))),
    }
    if share == 1:
        return data, facts
    num_train = max_rows
    num_validation = max(1, round(share * rows.num_validation)) if rows.num_validation else 0
    groups = data.groups
    if groups is not None:
        ends = rows.num_train, rows.num_train + num_validation
        groups = [*groups[:num_train], *groups[ends[0] : ends[1]]]
    return replace(
        data,
        train=_first(data.train, num_train),
        validation=_first(data.validation, num_validation) if num_validation else None,
        groups=groups,
    ), facts


def _first(part: Any, num_rows: int) -> Any:
    if not isinstance(part, Pipeline):
        return first_rows(part, num_rows)
    # A folder of the user's must not be left with a part of the rows.
    cache = MEMORY if part.cache is not None else None
    return replace(part, rows=first_rows(part.rows, num_rows), cache=cache)


def _bytes(part: Any) -> int:
    """Return the bytes of arrays; those of a pipeline are not held by a trial."""
    if not isinstance(part, tuple):
        return 0
    return sum(leaf.nbytes for _, leaf in leaves_of("", part))


@dataclass(frozen=True)
class Sample:
    """What of a workload is measured.

    Args:
        batch_size: Rows of a global batch.
        max_rows: Rows that count as all data.
        data_fraction: Share of them that is trained on.
        notes: Folder in which each process that trains leaves its id and what it found; None to
            leave nothing.
    """

    batch_size: int
    max_rows: int
    data_fraction: float
    notes: str | None = None


class _Sampled:
    """Mixed in before a workload's own class."""

    _tune_tf_sample: Sample

    def load_data(self, config: Config) -> Data:
        """Return the first rows of the training data and no others: only training is measured."""
        data = super().load_data(config)  # type: ignore[misc]
        sample = self._tune_tf_sample
        total = _num_rows(data)
        num_rows = max(1, round(min(total, sample.max_rows) * sample.data_fraction))
        if num_rows < sample.batch_size:
            raise WorkloadError(
                f"a batch of {sample.batch_size} rows is more than the {num_rows} rows of data"
            )
        note(sample.notes, {"num_rows": num_rows, "total_rows": total})
        return Data(train=first_rows(data.train, num_rows), class_weight=data.class_weight)

    def build_model(self, config: Config) -> Any:
        """Return the workload's model, and leave the id of this process."""
        note(self._tune_tf_sample.notes, {})
        return super().build_model(config)  # type: ignore[misc]

    def global_batch_size(self, config: Config) -> int:
        """Return the batch size to measure."""
        return self._tune_tf_sample.batch_size

    def callbacks(self, config: Config) -> tuple[()]:
        """Return none: they may wait for validation, or end the trial."""
        return ()


class _InputOnly(_Sampled):
    """Picks the rows of every batch and does what is computed of each, and nothing with them."""

    def train_step(self, model: Any, batch: Any) -> Mapping[str, Any]:
        """Wait for the batch."""
        import tensorflow as tf  # in the measured process only

        with tf.control_dependencies(tf.nest.flatten(batch)):
            model.optimizer.iterations.assign_add(0)  # what has no effect would be left out
            return {"loss": tf.zeros([])}


def sampled(workload: Workload, sample: Sample, *, input_only: bool = False) -> Workload:
    """Return a workload as it is to be measured.

    Args:
        workload: The user's; it is left as it is.
        sample: What of it is measured.
        input_only: Whether to leave the model out of an epoch.
    """
    mixin = _InputOnly if input_only else _Sampled
    return mixed_in(mixin, workload, _tune_tf_sample=sample)


def read_notes(folder: str) -> dict[int, dict[str, int]]:
    """Return what the processes of this machine have left, by process id."""
    return {
        int(path.stem): json.loads(path.read_text())
        for path in Path(folder).glob("*.json")
        if path.stem.isdigit()
    }


def note(folder: str | None, found: Mapping[str, int]) -> None:
    """Leave the id of this process and what it found.

    Args:
        folder: Where to; None, or one that is not on this machine, to leave nothing.
        found: By name; it is added to what this process has left before.
    """
    if folder is None or not Path(folder).is_dir():
        return
    path = Path(folder, f"{os.getpid()}.json")
    earlier = json.loads(path.read_text()) if path.exists() else {}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**earlier, **found}))
    partial.replace(path)


def _num_rows(data: Any) -> int:
    if not isinstance(data, Data) or not isinstance(data.train, tuple):
        raise WorkloadError(
            "how a workload scales is measured on data in arrays, Data(train=(x, y)): return "
            "arrays from load_data, if only a part of the data"
        )
    return rows_of(Data(data.train)).num_train
