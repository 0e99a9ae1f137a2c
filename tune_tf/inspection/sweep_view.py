"""Sweeps as their folders show them."""

import enum
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, TuneTfError, UnknownTrialError, did_you_mean
from tune_tf.formatting import printable
from tune_tf.inspection.trial_view import TrialView
from tune_tf.record import SweepFingerprint, SweepHistory, has_driver
from tune_tf.results import SweepResult
from tune_tf.space import flatten
from tune_tf.sweep_folder import SweepFolder, sweep_paths

_log = logging.getLogger(__name__)


class SweepState(enum.Enum):
    """State of a sweep."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """No driver, and a resume would continue it."""
    ENDED = "ended"


@dataclass(frozen=True)
class SweepView:
    """Snapshot of a sweep, read from its folder alone.

    Args:
        trials: In order of number.
        began_s: Start, in seconds since 1970.
        worked_s: Seconds with a driver.
        driver: The current or last driver process; empty if unknown.
        mlflow_run_id: Id of its parent run in MLflow, if known.
        ended_early: Why it ended before all trials were run; None if it did not.
        suspension: Why no new trials start at the moment; None if they do.
        fingerprint: Fingerprint of a reproducible sweep, unless it is running or was killed.
    """

    folder: SweepFolder
    state: SweepState
    trials: tuple[TrialView, ...]
    began_s: float
    worked_s: float
    driver: str = ""
    mlflow_run_id: str | None = None
    ended_early: str | None = None
    suspension: str | None = None
    fingerprint: SweepFingerprint | None = None

    @classmethod
    def open(cls, sweep: str | Path, storage_path: str | Path = "sweeps") -> "SweepView":
        """Read a sweep's folder, by path, id, or name for the latest sweep of that name.

        Ids and names are looked up in ``storage_path``.

        Raises:
            UnknownSweepError: There is no such sweep; lists existing ones.
            SweepConflictError: Its record is damaged.
        """
        return cls.of(SweepFolder.open(sweep, storage_path))

    @classmethod
    def of(cls, folder: SweepFolder, clock: Callable[[], float] = time.time) -> "SweepView":
        """Read a sweep's folder; ``clock`` is in seconds since 1970."""
        driven = has_driver(folder.path)
        history = SweepHistory.read(folder.path)
        sessions = history.sessions
        session = sessions[-1] if sessions else None
        has_ended = session is not None and session.ended_cleanly and not session.interrupted
        worked_s = sum(max(0.0, each.last_s - each.begun_s) for each in sessions)
        if session is not None and driven:
            worked_s += max(0.0, clock() - session.last_s)
        state = SweepState.ENDED if has_ended else SweepState.INTERRUPTED
        return cls(
            folder=folder,
            state=SweepState.RUNNING if driven else state,
            trials=tuple(
                TrialView.of(folder.path, trial, folder.config, driven=driven)
                for trial in history.trials.values()
            ),
            began_s=sessions[0].begun_s if sessions else folder.began_s,
            worked_s=worked_s,
            driver=session.driver if session else "",
            mlflow_run_id=history.run_id,
            ended_early=session.ended_early if session else None,
            suspension=session.suspension if session and driven else None,
            fingerprint=session.fingerprint if session else None,
        )

    @property
    def sweep_id(self) -> str:
        """Name of the sweep's folder."""
        return self.folder.sweep_id

    @property
    def config(self) -> SweepConfig:
        """The sweep's settings."""
        return self.folder.config

    @cached_property
    def result(self) -> SweepResult:
        """The result, as returned by a run of the sweep."""
        return SweepResult(
            sweep_id=self.sweep_id,
            path=self.folder.path,
            config=self.config,
            base_dir=self.folder.base_dir,
            trials=tuple(trial.result for trial in self.trials),
            mlflow_run_id=self.mlflow_run_id,
            ended_early=self.ended_early,
            fingerprint=self.fingerprint,
        )

    @cached_property
    def best(self) -> TrialView | None:
        """The best trial, as :attr:`SweepResult.best_trial` chooses it; None if there is none.

        Until a trial has completed, it is the one with the best last value.
        """
        best = self.result.best_if_any
        return None if best is None else self.trial(str(best.number))

    @property
    def best_value(self) -> float | None:
        """The best trial's value of the leading objective; None if there is none."""
        return None if self.best is None else self.result.best_value

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of trials by state, without zeros."""
        return dict(Counter(trial.state for trial in self.trials))

    def active_config(self, trial: TrialView) -> dict[str, Any]:
        """Return a trial's config by path, without inactive parameters."""
        space = self.config.space
        return flatten(space.active(trial.result.config), space.parameters)

    def row(self, trial: TrialView) -> dict[str, Any]:
        """Return a trial as plain data, without inactive parameters."""
        return {**trial.to_dict(), "config": self.config.space.active(trial.result.config)}

    @property
    def running(self) -> tuple[TrialView, ...]:
        """Running trials."""
        return tuple(trial for trial in self.trials if trial.state == "running")

    @property
    def num_ended(self) -> int:
        """Number of trials that have ended for good."""
        return sum(trial.has_ended for trial in self.trials)

    @property
    def num_iterations(self) -> int:
        """Total iterations of all trials."""
        return sum(trial.result.iterations for trial in self.trials)

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left, at most those of the time budget; None if unknown."""
        if self.state is not SweepState.RUNNING:
            return None
        budget, estimates = self.config.budget, []
        if self.num_ended:
            num_missing = max(0, budget.num_samples - self.num_ended)
            estimates.append(num_missing * self.worked_s / self.num_ended)
        if budget.time_budget_s:
            estimates.append(max(0.0, budget.time_budget_s - self.worked_s))
        return min(estimates, default=None)

    def __repr__(self) -> str:
        """Return the sweep's id, state and number of trials; never its settings."""
        return f"SweepView({self.sweep_id!r}, {self.state.value}, {len(self.trials)} trials)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with only the running trials and the best one."""
        return {
            **self.result.to_dict(),
            "state": self.state.value,
            "driver": self.driver,
            "trials": self.counts,
            "best": self.row(self.best) if self.best else None,
            "running": [self.row(trial) for trial in self.running],
            "began_s": self.began_s,
            "worked_s": self.worked_s,
            "left_s": self.left_s,
            "suspension": self.suspension,
        }

    def trial(self, name: str) -> TrialView:
        """Return a trial by number, id, or folder name.

        Raises:
            UnknownTrialError: There is no such trial.
        """
        for trial in self.trials:
            if name in (str(trial.number), trial.trial_id, trial.folder.name):
                return trial
        ids = [trial.trial_id for trial in self.trials]
        existing = f"there are {len(ids)}, numbered from 0" if ids else "none has started"
        raise UnknownTrialError(
            f"{self.sweep_id} has no trial {name!r}{did_you_mean(name, ids)}; {existing}"
        )


def list_sweeps(storage_path: str | Path = "sweeps") -> list[SweepView]:
    """Read the sweeps under a storage path, newest first; warn of those that cannot be read."""
    root = Path(storage_path)
    if root.exists() and not root.is_dir():
        raise InvalidSettingsError(f"{root} is not a folder: name the folder that holds sweeps")
    sweeps = []
    for path in sweep_paths(root):
        try:
            sweeps.append(SweepView.open(path))
        except TuneTfError as error:
            _log.warning("%s", printable(str(error)))
    return sorted(sweeps, key=lambda sweep: sweep.began_s, reverse=True)
