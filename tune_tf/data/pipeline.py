"""tf.data input pipelines."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.data.nested import Nested, leaves_of
from tune_tf.errors import InvalidSettingsError

MEMORY = "memory"


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Rows that are read, mapped and batched by tf.data while a trial trains.

    For data that do not fit into memory, such as the files of images: a part of
    :class:`tune_tf.Data` in place of arrays. Every row is read once an epoch, in the order that
    arrays would have, for any number of replicas and after a restore.

    Args:
        rows: ``(x, y)`` or ``(x, y, sample_weight)``, arrays with rows on the first axis, of what a
            row is read from: names of files, memory-mapped arrays (``numpy.load(mmap_mode="r")``).
        map: Makes ``(x, y)`` or ``(x, y, sample_weight)`` of a row, by TensorFlow's operations and
            always the same, in parallel on the CPUs of the trial; None to take rows as they are.
        cache: ``"memory"`` or a folder, where rows are kept after ``map`` for later epochs; None to
            map them anew in each.
        shuffle_buffer: Rows among which the next one is drawn, where rows come from a cache, which
            knows their first order only; None for all.
        prefetch: Batches that are made ready ahead; None lets tf.data choose.
        augment: Makes another row of one after ``map``, anew in every epoch of training:
            ``augment(row, seed)`` takes ``(x, y[, sample_weight])`` and a seed, int32 of shape
            ``[2]``, for ``tf.random.stateless_*``; it is another one for each row and epoch. Runs
            on the CPUs of the trial, ahead of training, where ``Workload.per_example`` computes
            with the same seeds on the devices.
        shared: Whether the trials on a node share ``map`` and ``augment``: a service of tf.data's
            makes each epoch's rows once for all of them, with the CPUs of the node. All then see
            the same rows in the same order, whatever their seeds. It pays where making rows costs
            more than to send them to each trial.

    Raises:
        InvalidSettingsError: A setting is wrong.
    """

    rows: tuple[Nested, ...]
    map: Callable[..., Any] | None = None
    cache: str | Path | None = None
    shuffle_buffer: int | None = None
    prefetch: int | None = None
    augment: Callable[..., Any] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = []
        if not isinstance(self.rows, tuple) or len(self.rows) not in (2, 3):
            errors.append(
                "rows must be a tuple (x, y) or (x, y, sample_weight) of arrays, not "
                f"{type(self.rows).__name__}"
            )
        if self.map is not None and not callable(self.map):
            errors.append(f"map must be a function of a row, not {self.map!r}")
        if self.augment is not None and not callable(self.augment):
            errors.append(f"augment must be a function of a row and a seed, not {self.augment!r}")
        if self.shared and self.cache is not None:
            errors.append(
                "shared and cache exclude each other, as trials that share rows keep none: leave "
                "one of them out"
            )
        for name in ("shuffle_buffer", "prefetch"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                errors.append(f"{name} must be a whole number from 1 on, not {value!r}")
        if self.shuffle_buffer is not None and self.cache is None:
            errors.append(
                "shuffle_buffer is for rows from a cache; without one all rows are mixed: leave it "
                "out, or set cache"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_rows(self) -> int:
        """Rows of an epoch."""
        return min((len(leaf) for _, leaf in leaves_of("", self.rows)), default=0)
