"""tf.data input pipelines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tune_tf.data.nested import Nested, leaves_of
from tune_tf.errors import InvalidSettingsError


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

    Raises:
        InvalidSettingsError: A setting is invalid.
    """

    rows: tuple[Nested, ...]
    map: Callable[..., Any] | None = None

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
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_rows(self) -> int:
        """Number of rows per epoch."""
        return min((len(leaf) for _, leaf in leaves_of("", self.rows)), default=0)
