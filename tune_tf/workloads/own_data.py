"""Base class of workloads on users' own data."""

import abc
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload
from tune_tf.workloads.data_settings import DataSettings

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
        files = "1 file" if self.num_files == 1 else f"{self.num_files:,} files"
        return f"{files} of {self.num_bytes:,} bytes"


def existing_file(path: str, setting: str) -> Path:
    """Return the path of an existing, non-empty file that a setting names.

    Raises:
        WorkloadError: The file is missing or empty, or the path is a folder.
    """
    found = Path(path)
    if found.is_dir():
        raise WorkloadError(f"{setting}: {path} is a folder: name a file in it")
    if not found.is_file():
        raise WorkloadError(
            f"{setting}: there is no file {path}; relative paths are relative to the folder of the "
            "sweep file"
        )
    if not found.stat().st_size:
        raise WorkloadError(f"{setting}: the file {path} is empty")
    return found


class OwnData(Workload, Generic[SettingsT, PropertiesT, SourceT]):
    """Workload whose data are described by settings.

    The properties of the data that the model needs (classes, columns, shapes) are inspected once
    and pickled with the workload: processes of trials build models without reading files, and
    reject files that have changed.

    Args:
        settings: Fields of ``settings_class``; relative paths start at the working directory.

    Raises:
        InvalidSettingsError: With all errors.
    """

    settings_class: ClassVar[type[DataSettings]]

    def __init__(self, **settings: Any) -> None:
        """Validate the settings without reading files."""
        made = self.settings_class.from_dict(settings).resolved(Path.cwd())
        self.settings: SettingsT = made  # type: ignore[assignment]
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

    def load_data(self, config: Config) -> Data:
        """Return the rows, split into training, validation and test rows.

        Raises:
            WorkloadError: The files are invalid or changed since they were inspected.
        """
        source, stamp = self._read()
        if self._properties is None:
            self._inspect(source, stamp)
        if stamp != self._stamp:
            settings = self.settings
            paths = (getattr(settings, name) for name in settings.paths)
            raise WorkloadError(
                f"{' or '.join(filter(None, paths))} changed during the sweep: it had "
                f"{self._stamp}, now {stamp} (or the same with other names or times): trials on "
                "different data cannot be compared; start a new sweep"
            )
        return self._data(source, config)

    def _inspect(self, source: SourceT, stamp: FileStamp | None) -> None:
        self._properties, self._stamp = self._found(source), stamp

    @abc.abstractmethod
    def _read(self) -> tuple[SourceT, FileStamp | None]:
        """Return the contents of the files or references to them, and their stamp.

        The stamp is None if the data cannot change.
        """

    @abc.abstractmethod
    def _found(self, source: SourceT) -> PropertiesT:
        """Return the properties of the data."""

    @abc.abstractmethod
    def _data(self, source: SourceT, config: Config) -> Data:
        """Return the rows."""
