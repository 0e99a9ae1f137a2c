"""Workloads that settings describe: their base class and the split of their rows."""

import abc
import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import Field

from tune_tf.config.settings import Settings
from tune_tf.data.nested import map_nested
from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload

NamedT = TypeVar("NamedT")

TaskKind = Literal["auto", "classification", "regression"]
"""Kind of the target; ``auto`` infers it from the target's values."""

_PARTS = {
    "training": "train",
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "testing": "test",
    "test": "test",
}
"""Part of a data set by the name that it may have in folders and files."""


def by_part(named: Mapping[str, NamedT], prefix: str = "") -> dict[str, NamedT]:
    """Return the values whose names, after a prefix, are those of a part of a data set, by part."""
    named = {name.removeprefix(prefix): named[name] for name in named if name.startswith(prefix)}
    return {part: named[name] for name, part in _PARTS.items() if name in named}


class DataSettings(Settings):
    """Where data are, and how their rows are split.

    Args:
        path: Where the data are.
        validation_share: Share of the rows that trials are validated on, unless the data have
            validation rows of their own.
        test_share: Share of the rows that no trial sees, unless the data have test rows of their
            own.
        seed: Seed of the choice of these rows.
    """

    path: Annotated[str, Field(min_length=1)]
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 0

    def resolved(self, base_dir: Path) -> Self:
        """Return the settings with an absolute path, a relative one being within ``base_dir``."""
        path = base_dir.absolute() / Path(self.path).expanduser()
        return self.model_copy(update={"path": str(path)})


def row_splits(
    num_rows: int, settings: DataSettings, classes: Any = None, parts: Collection[str] = ()
) -> "dict[str, np.ndarray[Any, Any]]":
    """Return the numbers of the rows of each part, ascending, by the shares and seed of settings.

    With ``classes`` of shape ``[rows]``, each part gets its share of each class, to within one row.
    If the data have test rows of their own (in ``parts``), none are split off; if they have
    validation rows, nothing is split and the result is empty.

    Raises:
        WorkloadError: A part with a share above 0, or the training part, would be empty.
    """
    if "validation" in parts:
        return {}
    test_share = 0.0 if "test" in parts else settings.test_share
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(num_rows)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    num_validation = round(num_rows * settings.validation_share)
    is_test = _evenly(num_rows, round(num_rows * test_share), rng)
    rest = order[~is_test]
    is_validation = _evenly(len(rest), min(num_validation, len(rest)), rng)
    rows = {
        "train": rest[~is_validation],
        "validation": rest[is_validation],
        "test": order[is_test],
    }
    shares = {"train": 1.0, "validation": settings.validation_share, "test": test_share}
    if empty := [part for part, share in shares.items() if share and not len(rows[part])]:
        raise WorkloadError(
            f"{num_rows} row(s) are too few: with validation_share "
            f"{settings.validation_share:g} and test_share {test_share:g} there are "
            f"none for {' and '.join(empty)}"
        )
    return {part: np.sort(rows[part]) for part, share in shares.items() if share}


def _evenly(num_rows: int, num_picked: int, rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """Return a mask that picks rows at even distances from a random start."""
    steps = np.floor(np.arange(num_rows + 1) * num_picked / max(1, num_rows) + rng.random())
    return np.diff(steps) > 0


SettingsT = TypeVar("SettingsT", bound=DataSettings)
PropertiesT = TypeVar("PropertiesT")
SourceT = TypeVar("SourceT")


class SettingsWorkload(Workload, Generic[SettingsT, PropertiesT, SourceT]):
    """Workload whose data are in files that settings describe.

    The properties of the data that the model needs (classes, columns, shapes) are inspected once
    and pickled with the workload: processes of trials build models without reading files, and
    reject files that have changed.

    The arguments are the fields of ``settings_class``; relative paths start at the working
    directory. Raises InvalidSettingsError with all errors.
    """

    settings_class: ClassVar[type[DataSettings]]

    def __init__(self, **settings: Any) -> None:
        """Validate the settings without reading files."""
        resolved = self.settings_class.from_dict(settings).resolved(Path.cwd())
        self.settings: SettingsT = resolved  # type: ignore[assignment]
        self._properties: PropertiesT | None = None
        #: Digest of the files' names, sizes and times at their inspection; empty before it.
        self.stamp = ""

    @classmethod
    def from_settings(cls, data: Mapping[str, Any], base_dir: Path) -> Self:
        """Return the workload of a sweep file; relative paths are relative to its folder."""
        return cls(**cls.settings_class.from_dict(data).resolved(base_dir).model_dump())

    def check_data(self) -> None:
        """Inspect the data."""
        _ = self.properties

    @property
    def properties(self) -> PropertiesT:
        """Properties of the data, inspected once.

        Raises:
            WorkloadError: The data are invalid.
        """
        if self._properties is None:
            source, self.stamp = self._source()
            self._properties = self._properties_of(source)
        return self._properties

    def load_data(self, config: Config) -> Data:
        """Return the rows, split into training, validation and test rows.

        Raises:
            WorkloadError: The files are invalid or changed since they were inspected.
        """
        self.check_data()
        source, stamp = self._source()
        if stamp != self.stamp:
            raise WorkloadError(
                f"{self.settings.path} changed during the sweep: trials on different data cannot "
                "be compared; start a new sweep"
            )
        parts = self._parts_of(source, config)
        x, y = parts["train"]
        classes = y if y.dtype == np.int32 else None
        for part, rows in row_splits(len(y), self.settings, classes, parts).items():
            parts[part] = map_nested(lambda array: array[rows], (x, y))  # noqa: B023
        return Data(**parts)

    def _source(self) -> tuple[SourceT, str]:
        try:
            return self._read()
        except OSError as error:
            raise WorkloadError(
                f"data.path: {error.filename} cannot be read: {error.strerror}; relative paths are "
                "relative to the folder of the sweep file"
            ) from error

    @abc.abstractmethod
    def _read(self) -> tuple[SourceT, str]:
        """Return the contents of the files or references to them, and their stamp before that."""

    @abc.abstractmethod
    def _properties_of(self, source: SourceT) -> PropertiesT:
        """Return the properties of the data."""

    @abc.abstractmethod
    def _parts_of(self, source: SourceT, config: Config) -> dict[str, Any]:
        """Return ``(x, y)`` by part; all under ``train`` if the files do not divide them.

        ``y`` is int32 for classes, float32 for numbers.
        """


def stamp_of(files: Iterable[Path]) -> str:
    """Return a digest of files' names, sizes and times.

    Copies that preserve times (``cp -p``, ``rsync -a``) are equal. Times are whole seconds, because
    many file systems and archives store no more.
    """
    stats = [(file.parent.name, file.name, file.stat()) for file in files]
    lines = [
        f"{folder}/{name} {stat.st_size} {int(stat.st_mtime)}\n" for folder, name, stat in stats
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
