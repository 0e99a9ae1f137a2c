"""Workloads that settings describe: their base class, split of rows and stamp of files."""

import abc
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.config.settings import Settings
from tune_tf.errors import WorkloadError
from tune_tf.formatting import counted
from tune_tf.validation import short_repr
from tune_tf.workload import Config, Data, Workload


def _texts(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names like [a, b], not {short_repr(value)}")
    for name in value:
        if not isinstance(name, str):
            raise ValueError(f"must hold names, not {short_repr(name)}: put it in quotes")
    return tuple(value)


NamedT = TypeVar("NamedT")

Names = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Ordered names."""

Text = Annotated[str, Field(min_length=1)]
"""Non-empty text."""

TaskKind = Literal["auto", "classification", "regression"]
"""Kind of the target; ``auto`` infers it from the target's values."""

_PART_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid"),
    "test": ("test", "testing"),
}
"""Names that the parts of a data set may have in folders and files."""


def by_part(named: Mapping[str, NamedT], prefix: str = "") -> dict[str, NamedT]:
    """Return the values whose names, after a prefix, are those of a part of a data set, by part."""
    return {
        part: named[f"{prefix}{name}"]
        for part, names in _PART_NAMES.items()
        for name in reversed(names)  # the first one wins
        if f"{prefix}{name}" in named
    }


class DataSettings(Settings):
    """Split of rows: shares to validate on and that no trial sees, and the seed of their choice.

    Args:
        validation_share: Share of the rows that trials are validated on, unless the data have
            validation rows of their own.
        test_share: Share of the rows that no trial sees, unless the data have test rows of their
            own.
        seed: Seed of the choice of these rows.
    """

    #: Names of the settings that are paths.
    paths: ClassVar[tuple[str, ...]] = ("path",)

    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("test_share")
    @classmethod
    def _check_shares(cls, share: float, info: ValidationInfo) -> float:
        validation = info.data.get("validation_share", 0)
        if share + validation >= 1:
            raise ValueError(
                f"is {share:g} and validation_share is {validation:g}: together they must be "
                "less than 1 to leave rows to train on"
            )
        return share

    def resolved(self, base_dir: Path) -> Self:
        """Return the settings with absolute paths, relative ones being relative to ``base_dir``."""
        absolute = {
            name: str(base_dir.absolute() / Path(value).expanduser())
            for name in self.paths
            if (value := getattr(self, name)) is not None
        }
        return self.model_copy(update=absolute)


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
    rows_by_part = {"train": rest[~is_validation]}
    if settings.validation_share:
        rows_by_part["validation"] = rest[is_validation]
    if test_share:
        rows_by_part["test"] = order[is_test]
    if empty := [part for part, rows in rows_by_part.items() if not len(rows)]:
        raise WorkloadError(
            f"{num_rows} row(s) are too few: with validation_share "
            f"{settings.validation_share:g} and test_share {test_share:g} there are "
            f"none for {' and '.join(empty)}"
        )
    return {part: np.sort(rows) for part, rows in rows_by_part.items()}


def _evenly(num_rows: int, num_picked: int, rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """Return a mask that picks rows at even distances from a random start."""
    steps = np.floor(np.arange(num_rows + 1) * num_picked / max(1, num_rows) + rng.random())
    return np.diff(steps) > 0


SettingsT = TypeVar("SettingsT", bound=DataSettings)
PropertiesT = TypeVar("PropertiesT")
SourceT = TypeVar("SourceT")


@dataclass(frozen=True)
class FileStamp:
    """Sizes and modification times of files, for detecting changes during a sweep.

    Copies that preserve times (``cp -p``, ``rsync -a``) are equal. Times are whole seconds, because
    many file systems and archives store no more.
    """

    num_files: int
    num_bytes: int
    digest: str

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Self:
        """Return the stamp of files.

        Raises:
            WorkloadError: A file is missing or inaccessible.
        """
        digest = hashlib.sha256()
        num_files = num_bytes = 0
        for path in paths:
            try:
                stat = path.stat()
            except OSError as error:
                raise WorkloadError(f"the file {path} cannot be read: {error.strerror}") from error
            digest.update(
                f"{path.parent.name}/{path.name} {stat.st_size} {int(stat.st_mtime)}\n".encode()
            )
            num_files += 1
            num_bytes += stat.st_size
        return cls(num_files, num_bytes, digest.hexdigest())

    def __str__(self) -> str:
        """Return the number of files and bytes as text."""
        return f"{counted(self.num_files, 'file')} of {counted(self.num_bytes, 'byte')}"


def existing_file(path: str, setting: str) -> Path:
    """Return the path of an existing, non-empty file that a setting names.

    Raises:
        WorkloadError: The file is missing or empty, or the path is a folder.
    """
    file = Path(path)
    if file.is_dir():
        raise WorkloadError(f"{setting}: {path} is a folder: name a file in it")
    if not file.is_file():
        raise missing_path_error(f"{setting}: there is no file {path}")
    if not file.stat().st_size:
        raise WorkloadError(f"{setting}: the file {path} is empty")
    return file


def missing_path_error(text: str) -> WorkloadError:
    """Return the error of a missing file or folder."""
    return WorkloadError(f"{text}; relative paths are relative to the folder of the sweep file")


class SettingsWorkload(Workload, Generic[SettingsT, PropertiesT, SourceT]):
    """Workload whose data are described by settings.

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
        self._stamp: FileStamp | None = None

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
            self._inspect(*self._read())
        return self._properties  # type: ignore[return-value]

    @property
    def stamp(self) -> FileStamp | None:
        """Stamp of the files at their inspection; None before it, and for data without files."""
        return self._stamp

    def load_data(self, config: Config) -> Data:
        """Return the rows, split into training, validation and test rows.

        Raises:
            WorkloadError: The files are invalid or changed since they were inspected.
        """
        source, stamp = self._read()
        if self._properties is None:
            self._inspect(source, stamp)
        if stamp != self._stamp:
            paths = (getattr(self.settings, name) for name in self.settings.paths)
            raise WorkloadError(
                f"{' or '.join(filter(None, paths))} changed during the sweep: it had "
                f"{self._stamp}, now {stamp} (or the same with other names or times): trials on "
                "different data cannot be compared; start a new sweep"
            )
        return self._data_of(source, config)

    def _inspect(self, source: SourceT, stamp: FileStamp | None) -> None:
        self._properties, self._stamp = self._properties_of(source), stamp

    @abc.abstractmethod
    def _read(self) -> tuple[SourceT, FileStamp | None]:
        """Return the contents of the files or references to them, and their stamp.

        The stamp is None if the data cannot change.
        """

    @abc.abstractmethod
    def _properties_of(self, source: SourceT) -> PropertiesT:
        """Return the properties of the data."""

    @abc.abstractmethod
    def _data_of(self, source: SourceT, config: Config) -> Data:
        """Return the rows, split into parts."""
