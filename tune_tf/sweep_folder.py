"""Sweep folder: settings and paths that a resume needs besides Tune's own files."""

import contextlib
import json
import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import parse_json, write_atomically
from tune_tf.config import SweepConfig
from tune_tf.config.stored_workload import StoredReference, write_workload
from tune_tf.errors import (
    InvalidSettingsError,
    SweepConflictError,
    UnknownSweepError,
    WorkloadError,
    did_you_mean,
)
from tune_tf.secrets import expand_references, mask_secrets, mask_settings
from tune_tf.space.document import YamlDocument, yaml_text

_CONFIG = "sweep.yaml"
_INFO = "sweep-info"  # no .json suffix: a resume makes Tune copy all .json and .pkl files
_SWEEP_ID = re.compile(r"(.+)-\d{8}-\d{6}(?:-\d+)?")
_PRIVATE, _SHARED = 0o700, 0o777
_RELATIVE_FILE = re.compile(
    r"((?:sqlite(?:\+\w+)?|journal)):///(?!/|:memory:|file:)(?=.)", re.IGNORECASE
)
"""Beginning of the address of a database or journal file that is relative to a folder."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepFolder:
    """Folder of a sweep; its name is the sweep's id.

    URIs in the settings may refer to environment variables as ``${NAME}``. References are expanded
    only where a URI is used, so their values are never written to disk; a property with such a URI
    raises InvalidSettingsError if the variable is not set.
    """

    path: Path  # absolute
    config: SweepConfig
    base_dir: Path  # a relative workload path starts there
    working_dir: Path  # the sweep was started there; relative SQLite paths start there
    mlflow_id: str = ""  # MLflow's runs of the sweep are tagged with it
    home: Path | None = None  # where it was last driven

    def __post_init__(self) -> None:
        """Tag the runs with the name of the folder, unless it says otherwise."""
        if not self.mlflow_id:
            object.__setattr__(self, "mlflow_id", self.path.name)

    @property
    def sweep_id(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def study_storage(self) -> str | None:
        """Optuna storage that shows the study, with an absolute path; None if there is none."""
        storage = self.config.searcher.storage
        if storage is None:
            return None
        address = self._absolute(expand_references(storage, "searcher.storage"))
        return address if "://" in address else str(self.working_dir / address)

    @property
    def warm_start_from(self) -> str | None:
        """Earlier results for a warm start, if any."""
        earlier = self.config.searcher.warm_start_from
        return earlier and expand_references(earlier, "searcher.warm_start_from")

    @property
    def tracking_uri(self) -> str | None:
        """MLflow tracking URI with an absolute path; None if tracking is off."""
        if self.config.mlflow is None:
            return None
        return self._absolute(
            expand_references(self.config.mlflow.tracking_uri, "mlflow.tracking_uri")
        )

    def _absolute(self, uri: str) -> str:
        """Return the address of a file with its absolute path; any other URI as it is."""
        match = _RELATIVE_FILE.match(uri)
        if match is None:
            return uri
        return f"{match[1].lower()}:///{self.working_dir / uri[match.end() :]}"

    @property
    def sweep_file(self) -> str:
        """Text of the sweep file with all defaults."""
        return self.config.to_yaml()

    @property
    def masked_file(self) -> str:
        """Text of the sweep file with secret values in ``data`` masked."""
        return masked_sweep_file(self.sweep_file)

    def edited(self) -> SweepConfig | None:
        """Return the edited settings of ``sweep.yaml``; None if unchanged.

        A missing file is written again. Another one is left as it is: invalid settings are an
        InvalidSettingsError.
        """
        path = self.path / _CONFIG
        if not path.exists():
            _log.warning("%s is missing; it is written again", path)
            self.save()
        if path.is_file() and path.read_bytes() == self.sweep_file.encode():
            return None
        try:
            config = SweepConfig.from_yaml(path)
        except InvalidSettingsError as error:
            what = f"correct it, or remove it: a resume restores it from {_INFO}"
            raise InvalidSettingsError([*error.details, what], str(path)) from None
        return None if config.to_dict() == self.config.to_dict() else config

    def with_config(self, config: SweepConfig) -> "SweepFolder":
        """Save new settings, which take effect at the next resume."""
        changed = replace(self, config=config)
        changed.save()
        return changed

    @property
    def began_s(self) -> float:
        """Creation time in seconds since 1970."""
        return (self.path / _INFO).stat().st_mtime

    @classmethod
    def create(
        cls,
        config: SweepConfig,
        base_dir: Path,
        now: datetime | None = None,
        *,
        private: bool = True,
    ) -> "SweepFolder":
        """Create the folder of a new sweep, named after the sweep and the time.

        If ``private``, only the user may read it; otherwise the umask applies. Raises
        InvalidSettingsError if it cannot be created.
        """
        root = config.sweeps_path
        stamp = (now or datetime.now(UTC).astimezone()).strftime("%Y%m%d-%H%M%S")
        for attempt in range(100):
            path = root / f"{config.name}-{stamp}{f'-{attempt:02}' if attempt else ''}"
            try:
                path.mkdir(parents=True, mode=_PRIVATE if private else _SHARED)
            except FileExistsError:
                continue
            except OSError as error:
                raise InvalidSettingsError(
                    f"the sweep's folder cannot be created in {root}: {error}"
                ) from error
            if isinstance(config.workload, StoredReference):
                base_dir = path
                try:
                    write_workload(config.workload.workload, path)
                except WorkloadError:
                    path.rmdir()
                    raise
            cls(path, config, base_dir.absolute(), Path.cwd()).save()
            return cls.open(path)  # as a resume reads it: YAML has no tuples
        raise SweepConflictError(f"{root} already holds a hundred sweeps named {path.name}")

    @classmethod
    def open(cls, sweep: str | Path, storage_path: str | Path = "sweeps") -> "SweepFolder":
        """Open the folder of an existing sweep.

        Args:
            sweep: Folder, id or name of the sweep; a name selects its latest sweep.
            storage_path: Folder that is searched for ids and names.

        Raises:
            UnknownSweepError: There is no such sweep; the message lists the existing ones.
        """
        path = _find(str(sweep), Path(storage_path))
        info = _read_info(path)
        # Opening a sweep must not run its code.
        try:
            config = SweepConfig.from_dict(info["settings"])
        except InvalidSettingsError as error:
            raise InvalidSettingsError(error.details, str(path / _INFO)) from None
        path = path.absolute()
        base_dir = path / info["base_dir"]
        return cls(path, config, base_dir, info["working_dir"], info["mlflow_id"], info["home"])

    def at_home(self) -> "SweepFolder":
        """Return the folder as one that is driven here.

        One that was moved keeps its runs in MLflow; a copy, whose original is still there, gets
        runs of its own.
        """
        if self.home == self.path:
            return self
        is_copy = False
        with contextlib.suppress(UnknownSweepError):
            is_copy = self.home is not None and _read_info(self.home)["mlflow_id"] == self.mlflow_id
        mlflow_id = f"{self.sweep_id}-{uuid.uuid4().hex[:8]}" if is_copy else self.mlflow_id
        moved = replace(self, mlflow_id=mlflow_id, home=self.path)
        moved.save()
        return moved

    def save(self) -> None:
        """Write the settings to the folder; if writing fails, the old ones remain."""
        info: dict[str, Any] = {
            "base_dir": "." if self.base_dir == self.path else str(self.base_dir),
            "working_dir": str(self.working_dir),
            "mlflow_id": self.mlflow_id,
            "home": str(self.path),
            "settings": self.sweep_file,  # a copy that edits of sweep.yaml do not change
        }
        write_atomically(self.path / _CONFIG, self.sweep_file)
        write_atomically(self.path / _INFO, json.dumps(info, indent=2) + "\n")


def masked_sweep_file(text: str) -> str:
    """Return the text of a sweep file with its secrets masked, those of ``data`` by their names."""
    settings = YamlDocument.parse(text).data
    if isinstance(settings, Mapping) and isinstance(settings.get("data"), Mapping):
        text = yaml_text({**settings, "data": mask_settings(settings["data"])})
    return mask_secrets(text)


def trial_folder_name(number: int) -> str:
    """Return the name of a trial's folder in that of its sweep: ``trial_00003``."""
    return f"trial_{number:05d}"


def sweep_paths(storage_path: Path) -> list[Path]:
    """Return the folders of all sweeps below a storage path, sorted by name and time."""
    return sorted(path.parent for path in storage_path.glob(f"*/{_INFO}"))


def _read_info(path: Path) -> dict[str, Any]:
    """Read the file ``sweep-info``; raise UnknownSweepError if it is damaged."""
    try:
        info = parse_json((path / _INFO).read_bytes())
        info |= {name: Path(info[name]) for name in ("base_dir", "working_dir", "home")}
        info["mlflow_id"] = str(info["mlflow_id"])
        info["settings"] = YamlDocument.parse(str(info["settings"])).data
    except (OSError, ValueError, TypeError, LookupError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise UnknownSweepError(
            f"{path} holds no sweep that can be read: its file {_INFO} is damaged ({reason}), and "
            "with it the folder that its paths are relative to"
        ) from error
    return dict(info)


def _name_of(sweep_id: str) -> str:
    """Return the name of a sweep from its id; empty if the folder was renamed."""
    match = _SWEEP_ID.fullmatch(sweep_id)
    return match[1] if match else ""


def _find(sweep: str, root: Path) -> Path:
    for path in (Path(sweep), root / sweep):
        try:
            if (path / _INFO).is_file():
                return path
        except PermissionError as error:
            raise UnknownSweepError(
                f"{path} cannot be read: {error.strerror}; its owner can"
            ) from error
    names = [path.name for path in sweep_paths(root)]
    if namesakes := [name for name in names if _name_of(name) == sweep]:
        return root / namesakes[-1]
    existing = (
        f"those in {root} are {', '.join(names)}"
        if names
        else (
            f"there are none in {root}: name the sweep's folder, or the storage path that it is in"
        )
    )
    if Path(sweep).is_dir():
        raise UnknownSweepError(f"{sweep} is a folder, but not of a sweep; {existing}")
    hint = did_you_mean(sweep, [*names, *map(_name_of, names)])
    raise UnknownSweepError(f"there is no sweep {sweep!r}{hint}; {existing}")
