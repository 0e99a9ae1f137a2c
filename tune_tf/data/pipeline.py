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
    """Rows that tf.data reads, maps and batches while a trial trains.

    Use it instead of arrays in :class:`tune_tf.Data` for data that do not fit into memory, such as
    image files. Every row is read once per epoch, in the same order as arrays, for any number of
    replicas and after a restore.

    Args:
        rows: ``(x, y)`` or ``(x, y, sample_weight)``, arrays with rows on the first axis, as input
            of ``map``: file names, memory-mapped arrays (``numpy.load(mmap_mode="r")``).
        map: Returns ``(x, y)`` or ``(x, y, sample_weight)`` for a row, deterministically, by
            TensorFlow operations, in parallel on the trial's CPUs. None to use the rows as they
            are.
        cache: ``"memory"`` or a folder that caches rows after ``map``; None to map in each epoch.
        shuffle_buffer: Number of cached rows, which are in a fixed order, to draw the next one
            from; None for all rows.
        prefetch: Number of batches prepared in advance; None lets tf.data choose.
        augment: Returns a random variant of a row after ``map`` in each training epoch:
            ``augment(row, seed)`` takes ``(x, y[, sample_weight])`` and a seed for
            ``tf.random.stateless_*``, int32 of shape ``[2]``, which differs per row and epoch. Runs
            on the trial's CPUs; ``Workload.per_example`` uses the same seeds on the devices.

    Raises:
        InvalidSettingsError: A setting is invalid.
    """

    rows: tuple[Nested, ...]
    map: Callable[..., Any] | None = None
    cache: str | Path | None = None
    shuffle_buffer: int | None = None
    prefetch: int | None = None
    augment: Callable[..., Any] | None = None

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
        for name in ("shuffle_buffer", "prefetch"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                errors.append(f"{name} must be an integer of at least 1, not {value!r}")
        if self.shuffle_buffer is not None and self.cache is None:
            errors.append(
                "shuffle_buffer is for rows from a cache; without one all rows are shuffled: leave "
                "it out, or set cache"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_rows(self) -> int:
        """Number of rows per epoch."""
        return min((len(leaf) for _, leaf in leaves_of("", self.rows)), default=0)
