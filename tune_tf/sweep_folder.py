"""The folder of a sweep: what a resume needs, beside what Ray Tune keeps there itself."""

import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tune_tf.atomic_files import write_whole
from tune_tf.config import SweepConfig, yaml_text
from tune_tf.errors import InvalidSettingsError, SweepConflictError, UnknownSweepError, near_ones
from tune_tf.secrets import expanded, referring, values_in, without_secrets
from tune_tf.space.document import YamlDocument
from tune_tf.version import __version__

_CONFIG = "sweep.yaml"
_ABOUT = "about-sweep"  # Tune copies every .json and .pkl of the folder about at a resume
_ABOUT_TOO = ".about-sweep"  # the same once more, should one be damaged
_JOURNAL = "study.journal"
_FORMAT = 1
_PRIVATE, _SHARED = 0o700, 0o777

_log = logging.getLogger(__name__)

TRACKING_VARIABLE = "TUNE_TF_TRACKING_PASSWORD"
STORAGE_VARIABLE = "TUNE_TF_STORAGE_PASSWORD"
WARM_START_VARIABLE = "TUNE_TF_WARM_START_PASSWORD"
"""Environment variables that a resume reads a password from, which stood in the sweep file."""


@dataclass(frozen=True)
class SweepFolder:
    """One sweep's folder; its name is the sweep's id.

    A URI of the settings may hold references ``${NAME}`` to environment variables. They are
    replaced only where the URI is used, so that what they stand for is nowhere written.

    Args:
        path: Absolute path.
        config: The sweep's settings.
        base_dir: What the workload's path in the settings is relative to.
        working_dir: Where the sweep was started; what a relative SQLite file is relative to.
    """

    path: Path
    config: SweepConfig
    base_dir: Path
    working_dir: Path

    @property
    def sweep_id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def study_storage(self) -> str:
        """Optuna storage: what the settings name, or a journal file in the folder.

        Raises:
            InvalidSettingsError: It refers to an environment variable that is not set.
        """
        storage = self.config.searcher.storage or str(self.path / _JOURNAL)
        return expanded(storage, "searcher.storage")

    @property
    def warm_start_from(self) -> str | None:
        """Earlier results to learn from; None for none.

        Raises:
            InvalidSettingsError: It refers to an environment variable that is not set.
        """
        earlier = self.config.searcher.warm_start_from
        return earlier and expanded(earlier, "searcher.warm_start_from")

    @property
    def tracking_uri(self) -> str | None:
        """MLflow's store with an absolute path; None where tracking is off.

        Raises:
            InvalidSettingsError: It refers to an environment variable that is not set.
        """
        if self.config.mlflow is None:
            return None
        uri = expanded(self.config.mlflow.tracking_uri, "mlflow.tracking_uri")
        scheme, slashes, path = uri.partition(":///")
        if scheme == "sqlite" and slashes and not path.startswith("/"):
            return f"sqlite:///{self.working_dir / path}"
        return uri

    @property
    def sweep_file(self) -> str:
        """Text of the sweep file with every default written out and no password in it.

        What a resume has to find in the environment in the place of a password is named
        :data:`TRACKING_VARIABLE`, :data:`STORAGE_VARIABLE` and :data:`WARM_START_VARIABLE`.
        """
        searcher, mlflow = self.config.searcher, self.config.mlflow
        references = {
            "storage": searcher.storage and referring(searcher.storage, STORAGE_VARIABLE),
            "warm_start_from": searcher.warm_start_from
            and referring(searcher.warm_start_from, WARM_START_VARIABLE),
        }
        sections: dict[str, Any] = {"searcher": searcher.model_copy(update=references)}
        if mlflow is not None:
            uri = referring(mlflow.tracking_uri, TRACKING_VARIABLE)
            sections["mlflow"] = mlflow.model_copy(update={"tracking_uri": uri})
        return self.config.model_copy(update=sections).to_yaml()

    @property
    def shown_file(self) -> str:
        """The same text for others to read, without what names in ``data`` say is secret."""
        data = self.config.data
        if data is None:
            return self.sweep_file
        settings = YAML(typ="safe", pure=True).load(self.sweep_file)
        return yaml_text({**settings, "data": without_secrets(settings["data"])})

    @property
    def secrets(self) -> frozenset[str]:
        """What the settings' URIs hold or refer to that nobody else is to read."""
        searcher, mlflow = self.config.searcher, self.config.mlflow
        uris = (searcher.storage, searcher.warm_start_from, mlflow and mlflow.tracking_uri)
        return values_in(uri for uri in uris if uri)

    def edited(self) -> SweepConfig | None:
        """Return the settings of ``sweep.yaml`` if they are others than the sweep's.

        A file that is missing or cut short is none: it is written anew.

        Raises:
            InvalidSettingsError: It was edited, and is wrong.
        """
        path = self.path / _CONFIG
        try:
            found = path.read_text()
        except (OSError, UnicodeDecodeError):
            found = ""
        if self.sweep_file.startswith(found):
            if found != self.sweep_file:
                _log.warning("%s was cut short or is gone; it is written anew", path)
                self.save()
            return None
        config = SweepConfig.from_yaml(path)
        return None if config.to_dict() == self.config.to_dict() else config

    def with_config(self, config: SweepConfig) -> "SweepFolder":
        """Give the sweep other settings, from its next resume on."""
        changed = replace(self, config=config)
        changed.save()
        return changed

    @property
    def began_s(self) -> float:
        """When it was made, in seconds since 1970."""
        return (self.path / _ABOUT).stat().st_mtime

    @classmethod
    def create(
        cls,
        config: SweepConfig,
        base_dir: Path,
        now: datetime | None = None,
        *,
        private: bool = True,
    ) -> "SweepFolder":
        """Make the folder of a new sweep, named by its name and the time.

        Args:
            config: The sweep's settings.
            base_dir: What the workload's path is relative to.
            now: The time.
            private: Whether nobody but the user may look into it; else as the umask says.

        Raises:
            InvalidSettingsError: The folder cannot be made.
        """
        root = config.sweeps_path
        stamp = (now or datetime.now(UTC).astimezone()).strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            path = root / f"{config.name}-{stamp}{f'-{attempt}' if attempt else ''}"
            try:
                path.mkdir(parents=True, mode=_PRIVATE if private else _SHARED)
            except FileExistsError:
                continue
            except OSError as error:
                raise InvalidSettingsError(
                    [f"the sweep's folder cannot be made in {root}: {error}"]
                ) from error
            folder = cls(path, config, base_dir.absolute(), Path.cwd())
            folder.save()
            return folder
        raise SweepConflictError(f"{root} already holds a hundred sweeps named {path.name}")

    @classmethod
    def open(cls, sweep: str | Path, storage_path: str | Path = "sweeps") -> "SweepFolder":
        """Return the folder of an earlier sweep.

        Args:
            sweep: Its path, or its id below ``storage_path``, or a sweep's name for the latest one
                of that name.
            storage_path: Where sweeps are looked for by id or name.

        Raises:
            UnknownSweepError: There is none; names those that there are.
            SweepConflictError: A newer version of tune_tf has written it.
        """
        path = _find(str(sweep), Path(storage_path))
        about = _read_about(path)
        if about["format"] > _FORMAT:
            raise SweepConflictError(
                f"{path} was written by tune_tf {about.get('tune_tf')}, which is newer than this "
                f"{__version__}: update, then go on"
            )
        settings = about.get("settings")
        # Whoever only looks at a sweep runs none of its code.
        if settings is None:  # an earlier version kept them in the file alone
            config = SweepConfig.from_yaml(path / _CONFIG, trusted=False)
        else:
            config = SweepConfig.from_dict(YamlDocument.parse(settings).data)
        return cls(path.absolute(), config, Path(about["base_dir"]), Path(about["working_dir"]))

    def save(self) -> None:
        """Write the settings into the folder.

        Raises:
            OSError: They cannot be written; those that were there stay.
        """
        about: dict[str, Any] = {
            "format": _FORMAT,
            "tune_tf": __version__,
            "base_dir": str(self.base_dir),
            "working_dir": str(self.working_dir),
            "settings": self.sweep_file,  # what the sweep has, whatever becomes of the file
        }
        text = json.dumps(about, indent=2) + "\n"
        write_whole(self.path / _CONFIG, self.sweep_file)
        for name in (_ABOUT_TOO, _ABOUT):
            write_whole(self.path / name, text)


def sweep_paths(storage_path: Path) -> list[Path]:
    """Return the folders of all sweeps under a storage path, in order of their names."""
    return sorted(path.parent for path in storage_path.glob(f"*/{_ABOUT}"))


def _read_about(path: Path) -> dict[str, Any]:
    """Return what the sweep's folder tells of itself.

    Raises:
        UnknownSweepError: It is damaged.
    """
    faults = []
    for name in (_ABOUT, _ABOUT_TOO):
        try:
            about = json.loads((path / name).read_text())
            about["format"] = int(about["format"])
            if about["format"] <= _FORMAT:
                Path(about["base_dir"]), Path(about["working_dir"])
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            faults.append(error)
        else:
            return dict(about)
    raise UnknownSweepError(
        f"{path} holds no sweep that can be read: its files {_ABOUT} and {_ABOUT_TOO} are damaged "
        f"({faults[0]}), and with them what its paths are relative to"
    )


def _find(sweep: str, root: Path) -> Path:
    for path in (Path(sweep), root / sweep):
        if (path / _ABOUT).is_file():
            return path
    known = [path.name for path in sweep_paths(root)]
    of_that_name = [name for name in known if name.rpartition("-")[0].rpartition("-")[0] == sweep]
    if of_that_name:
        return root / of_that_name[-1]
    there = f"those in {root} are {', '.join(known)}" if known else f"there are none in {root}"
    if Path(sweep).is_dir():
        raise UnknownSweepError(f"{sweep} is a folder, but not that of a sweep; {there}")
    names = [name.rpartition("-")[0].rpartition("-")[0] for name in known]
    near = near_ones(sweep, [*known, *names])
    raise UnknownSweepError(f"there is no sweep {sweep!r}{near}; {there}")
