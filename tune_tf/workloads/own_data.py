"""Workloads on users' own data, made from settings alone."""

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
class Facts:
    """What the model of a workload has to know of its data.

    Args:
        stamp: The files that it was found in; None where they cannot change.
    """

    stamp: FileStamp | None


SettingsT = TypeVar("SettingsT", bound=DataSettings)
FactsT = TypeVar("FactsT", bound=Facts)
SourceT = TypeVar("SourceT")


class OwnData(Workload, Generic[SettingsT, FactsT, SourceT]):
    """A workload whose data are described by settings.

    What its model has to know of the data (classes, columns, shapes) is found out once and pickled
    along: the processes of trials build models without reading files, and refuse files that are no
    longer those.

    Args:
        settings: Those of ``settings_class``; relative paths are relative to the working directory.

    Raises:
        InvalidSettingsError: With all faults.
    """

    settings_class: ClassVar[type[DataSettings]]

    def __init__(self, **settings: Any) -> None:
        """Refuse bad settings; read nothing."""
        made = self.settings_class.from_dict(settings).resolved(Path.cwd())
        self.settings: SettingsT = made  # type: ignore[assignment]
        self._facts: FactsT | None = None

    @classmethod
    def from_settings(cls, data: Mapping[str, Any], base_dir: Path) -> Self:
        """Return the workload of a sweep file; paths are relative to its folder."""
        return cls(**cls.settings_class.from_dict(data).resolved(base_dir).model_dump())

    def check_data(self) -> None:
        """Find out what there is to know of the data."""
        _ = self.facts

    @property
    def facts(self) -> FactsT:
        """What is known of the data; the files are looked at once.

        Raises:
            WorkloadError: They are not as they must be.
        """
        if self._facts is None:
            self._facts = self._found(self._read())
        return self._facts

    def load_data(self, config: Config) -> Data:
        """Return the rows, divided into training, validation and test rows.

        Raises:
            WorkloadError: The files are not as they must be, or changed since they were looked at.
        """
        source = self._read()
        if self._facts is None:
            self._facts = self._found(source)
        if self._stamp(source) != self._facts.stamp:
            raise WorkloadError(
                f"{self._place} changed while the sweep runs: it had {self._facts.stamp}, now "
                f"{self._stamp(source)} (or the same with other names or times): trials on other "
                "data cannot be compared; start a new sweep"
            )
        return self._data(source, self._facts, config)

    @property
    def _place(self) -> str:
        """Where the data are, for messages."""
        return str(getattr(self.settings, self.settings.paths[0]))

    @abc.abstractmethod
    def _read(self) -> SourceT:
        """Return what there is in the files, or where that is."""

    @abc.abstractmethod
    def _stamp(self, source: SourceT) -> FileStamp | None:
        """Return what tells the files of a source from others."""

    @abc.abstractmethod
    def _found(self, source: SourceT) -> FactsT:
        """Return what the model has to know."""

    @abc.abstractmethod
    def _data(self, source: SourceT, facts: FactsT, config: Config) -> Data:
        """Return the rows."""
