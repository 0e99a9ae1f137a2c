"""A workload as it is measured for a forecast: whole if it is small, else some batches of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.data import Pipeline, first_rows, rows_of
from tune_tf.data.nested import leaves_of
from tune_tf.data.pipeline import MEMORY
from tune_tf.scaling.sampled import note
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
