"""The sweeps of a storage path, and comparison of sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.errors import InvalidSettingsError, TuneTfError
from tune_tf.inspection.sweep_view import SweepView
from tune_tf.objective import Objective
from tune_tf.ranking import Candidate, best_of
from tune_tf.sweep_folder import sweep_paths


@dataclass(frozen=True)
class SweepList:
    """The sweeps of a storage path, newest first, and the errors by name of unreadable folders."""

    storage_path: Path
    sweeps: tuple[SweepView, ...]
    unreadable: Mapping[str, str]


def list_sweeps(storage_path: str | Path = "sweeps") -> SweepList:
    """Read the folders of all sweeps under a storage path."""
    root = Path(storage_path)
    if root.exists() and not root.is_dir():
        raise InvalidSettingsError(f"{root} is not a folder: name the folder that holds sweeps")
    sweeps, unreadable = [], {}
    for path in sweep_paths(root):
        try:
            sweeps.append(SweepView.open(path))
        except TuneTfError as error:
            unreadable[path.name] = str(error)
    newest_first = sorted(sweeps, key=lambda sweep: sweep.began_s, reverse=True)
    return SweepList(root, tuple(newest_first), unreadable)


@dataclass(frozen=True)
class Comparison:
    """Two or more sweeps with the same leading objective.

    Raises:
        InvalidSettingsError: There are fewer than two, one is named twice, or their objectives
            differ.
    """

    sweeps: tuple[SweepView, ...]

    def __post_init__(self) -> None:
        """Validate that the sweeps are comparable."""
        errors = []
        if len(self.sweeps) < 2:
            errors.append("name at least two sweeps to compare")
        ids = [sweep.sweep_id for sweep in self.sweeps]
        errors += [f"{name} is named twice" for name in {it for it in ids if ids.count(it) > 1}]
        leading = [sweep.config.leading_objective for sweep in self.sweeps]
        objectives = [f"{objective.mode} {objective.metric}" for objective in leading]
        if len(set(objectives)) > 1:
            text = ", ".join(f"{name}: {it}" for name, it in zip(ids, objectives, strict=True))
            errors.append(f"sweeps with different objectives cannot be compared ({text})")
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def objective(self) -> Objective:
        """Leading objective of all sweeps."""
        return self.sweeps[0].config.leading_objective

    @property
    def best(self) -> SweepView | None:
        """The sweep with the best value; None if none has a value."""
        candidates = (Candidate(sweep, None, sweep.best_value) for sweep in self.sweeps)
        best = best_of(candidates, self.objective)
        return best.key if best else None

    @property
    def best_configs(self) -> dict[str, tuple[Any, ...]]:
        """Best configs by path, one value per sweep; None for a missing one."""
        configs = [sweep.active_config(sweep.best) if sweep.best else {} for sweep in self.sweeps]
        paths = dict.fromkeys(path for config in configs for path in config)
        return {path: tuple(config.get(path) for config in configs) for path in paths}


def compare_sweeps(
    sweeps: Sequence[str | Path], *, storage_path: str | Path = "sweeps"
) -> Comparison:
    """Read sweeps by path, id, or name for the latest of that name, and compare them.

    Raises:
        UnknownSweepError: A sweep does not exist.
        SweepConflictError: A sweep was written by a newer version of tune_tf.
        InvalidSettingsError: They cannot be compared.
    """
    return Comparison(tuple(SweepView.open(sweep, storage_path) for sweep in sweeps))
