"""Base class of workloads on users' own data."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config, Data, Workload
from tune_tf.workloads.data_settings import DataSettings
from tune_tf.workloads.file_stamp import FileStamp


@dataclass(frozen=True, eq=False)
class DataProperties:
    """Properties of the data that a model is built from.

    The ``stamp`` is None if the data cannot change.
    """

    stamp: FileStamp | None


SettingsT = TypeVar("SettingsT", bound=DataSettings)
PropertiesT = TypeVar("PropertiesT", bound=DataProperties)
SourceT = TypeVar("SourceT")


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
            self._properties = self._found(self._read())
        return self._properties

    def load_data(self, config: Config) -> Data:
        """Return the rows, split into training, validation and test rows.

        Raises:
            WorkloadError: The files are invalid or changed since they were inspected.
        """
        source = self._read()
        if self._properties is None:
            self._properties = self._found(source)
        if self._stamp(source) != self._properties.stamp:
            raise WorkloadError(
                f"{self._place} changed during the sweep: it had {self._properties.stamp}, now "
                f"{self._stamp(source)} (or the same with other names or times): trials on "
                "different data cannot be compared; start a new sweep"
            )
        return self._data(source, self._properties, config)

    @property
    def _place(self) -> str:
        return str(getattr(self.settings, self.settings.paths[0]))

    @abc.abstractmethod
    def _read(self) -> SourceT:
        """Return the contents of the files, or references to them."""

    @abc.abstractmethod
    def _stamp(self, source: SourceT) -> FileStamp | None:
        """Return the stamp of the files of a source."""

    @abc.abstractmethod
    def _found(self, source: SourceT) -> PropertiesT:
        """Return the properties of the data."""

    @abc.abstractmethod
    def _data(self, source: SourceT, properties: PropertiesT, config: Config) -> Data:
        """Return the rows."""
