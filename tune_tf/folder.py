"""The folder of a sweep: what a resume needs, beside what Ray Tune keeps there itself."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, SweepConflictError, UnknownSweepError, near_ones
from tune_tf.secrets import expanded, referring
from tune_tf.version import __version__

_CONFIG = "sweep.yaml"
_ABOUT = "about-sweep"  # Tune copies every .json and .pkl of the folder about at a resume
_JOURNAL = "study.journal"
_FORMAT = 1

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
    def was_snapshot(self) -> bool:
        """Whether Tune has written its state at least once."""
        return any(self.path.glob("experiment_state-*.json"))

    @property
    def began_s(self) -> float:
        """When it was made, in seconds since 1970."""
        return (self.path / _ABOUT).stat().st_mtime

    @classmethod
    def create(
        cls, config: SweepConfig, base_dir: Path, now: datetime | None = None
    ) -> "SweepFolder":
        """Make the folder of a new sweep, named by its name and the time.

        Raises:
            InvalidSettingsError: The folder cannot be made.
        """
        if "://" in config.storage_path:
            raise InvalidSettingsError(
                [f"storage_path must be a local folder, not {config.storage_path!r}"]
            )
        root = Path(config.storage_path).absolute()
        stamp = (now or datetime.now(UTC).astimezone()).strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            path = root / f"{config.name}-{stamp}{f'-{attempt}' if attempt else ''}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise InvalidSettingsError(
                    [f"storage_path {config.storage_path!r} cannot be written to: {error}"]
                ) from error
            folder = cls(path, config, base_dir.absolute(), Path.cwd())
            folder._write()
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
        try:
            about = json.loads((path / _ABOUT).read_text())
            written, version = int(about["format"]), about.get("tune_tf")
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise UnknownSweepError(
                f"{path} holds no sweep that can be read: its file {_ABOUT} is damaged ({error})"
            ) from error
        if written > _FORMAT:
            raise SweepConflictError(
                f"{path} was written by tune_tf {version}, which is newer than this "
                f"{__version__}: update, then go on"
            )
        config = SweepConfig.from_yaml(path / _CONFIG)
        return cls(path.absolute(), config, Path(about["base_dir"]), Path(about["working_dir"]))

    def _write(self) -> None:
        about: dict[str, Any] = {
            "format": _FORMAT,
            "tune_tf": __version__,
            "base_dir": str(self.base_dir),
            "working_dir": str(self.working_dir),
        }
        write_whole(self.path / _CONFIG, self.sweep_file)
        write_whole(self.path / _ABOUT, json.dumps(about, indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: a crash leaves the old one or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def sweep_paths(storage_path: Path) -> list[Path]:
    """Return the folders of all sweeps under a storage path, in order of their names."""
    return sorted(path.parent for path in storage_path.glob(f"*/{_ABOUT}"))


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
