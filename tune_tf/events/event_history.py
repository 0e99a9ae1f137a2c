"""State of a sweep and its trials, rebuilt from the event log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import read_json_lines
from tune_tf.outcome import Outcome
from tune_tf.result_keys import LATEST_S, is_valid_result

_LAST_NUMBER = 10**9

EVENT_LOG = "events.jsonl"
"""Name of the event log in a sweep's folder."""


@dataclass(frozen=True)
class SweepFingerprint:
    """Digest of a reproducible sweep, and what it depends on besides the settings.

    Args:
        digest: Of all configs, results and outcomes, 16 hexadecimal digits.
        num_results: Number of these results.
        environment: Versions, device and reserved CPUs of a trial, by name.
        reasons: Why it cannot be compared with that of another run; empty if it can.
    """

    digest: str
    num_results: int
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> "SweepFingerprint | None":
        """Return that of plain data; None for None."""
        if data is None:
            return None
        environment = {str(name): str(it) for name, it in dict(data["environment"]).items()}
        reasons = tuple(map(str, data["reasons"]))
        return cls(str(data["digest"]), int(data["num_results"]), environment, reasons)

    def __str__(self) -> str:
        """Return the digest, with the reasons why it cannot be compared, if any."""
        reasons = "; ".join(self.reasons)
        return f"{self.digest}, not comparable: {reasons}" if reasons else self.digest

    @property
    def origin(self) -> str:
        """Text with the number of results and the environment."""
        environment = ", ".join(f"{name} {value}" for name, value in self.environment.items())
        return f"{self.num_results} results, with {environment}"


@dataclass
class Session:
    """Period in which one process drove the sweep; times are seconds since 1970."""

    begun_s: float
    last_s: float  # last write
    ended_cleanly: bool = False  # without a crash
    interrupted: bool = False  # a resume would continue trials
    ended_early: str | None = None  # why the sweep ended before all its trials had
    missing_outputs: tuple[str, ...] = ()  # could not be written at the end; a resume tries again
    fingerprint: SweepFingerprint | None = None  # of a reproducible sweep so far, at the end
    process: int = 0  # of the driver; 0 if unknown
    host: str = ""

    @property
    def driver(self) -> str:
        """Text like ``process 71 on node-1``."""
        return f"process {self.process} on {self.host}"


@dataclass
class TrialEvents:
    """State of a trial according to the event log; times are seconds since 1970."""

    trial_id: str
    number: int  # in order of suggestion, from 0
    config: Mapping[str, Any]  # at the last start
    started_s: float | None = None  # first start
    ended_s: float | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    waiting: str | None = None
    """"paused" by the scheduler, "pending" before its start or its continuation, or None."""
    checkpoints_removed: bool = False  # to save disk space
    last: Mapping[str, Any] = field(default_factory=dict)
    """Last result, without the config; empty if unknown."""
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    tested_s: float = 0.0


@dataclass
class EventHistory:
    """Sessions and trials of a sweep according to its event log."""

    sessions: list[Session] = field(default_factory=list)
    trials: dict[str, TrialEvents] = field(default_factory=dict)
    """By Tune's id, in the order of their first events."""
    suspension: str | None = None  # why no new trial starts
    run_id: str | None = None  # MLflow's id of the sweep's parent run
    run_ids: dict[str, str] = field(default_factory=dict)
    """MLflow's ids of the trials' runs, by Tune's id, as far as known."""
    environment: dict[str, str] = field(default_factory=dict)
    """What the results of a reproducible sweep depend on besides its settings, by name."""
    reasons: tuple[str, ...] = ()  # why they cannot be compared with those of another sweep

    @classmethod
    def read(cls, folder: Path) -> "EventHistory":
        """Read the event log of a sweep's folder; skip damaged lines and a missing file."""
        history = cls()
        for _ in read_json_lines(folder / EVENT_LOG, history._can_apply):
            pass
        return history

    def _can_apply(self, event: Mapping[str, Any]) -> bool:
        try:
            self._apply(event)
        except (KeyError, TypeError, ValueError, OverflowError):
            return False
        return True

    def _apply(self, event: Mapping[str, Any]) -> None:
        at, kind = float(event["at"]), event["event"]
        if not 0 <= at < LATEST_S:
            raise ValueError(f"no time: {at}")
        if kind == "begun":
            self._begin_session(int(event["process"]), str(event["host"]), at)
        elif kind == "tracked":
            self.run_id = str(event["run_id"])
        elif kind == "environment":
            self.environment = {name: str(it) for name, it in dict(event["environment"]).items()}
            self.reasons = tuple(map(str, event["reasons"]))
        elif kind in ("suspended", "resumed"):
            self.suspension = _text(event.get("why"))
        elif kind == "over":
            fingerprint = SweepFingerprint.of(event.get("fingerprint"))
            self.run_ids.update({key: str(it) for key, it in dict(event["run_ids"]).items()})
            if self.sessions:
                session = self.sessions[-1]
                session.ended_cleanly = True
                session.interrupted = bool(event["interrupted"])
                session.ended_early = _text(event.get("ended_early"))
                session.missing_outputs = tuple(map(str, event.get("left", ())))
                session.fingerprint = fingerprint
                self.reasons = fingerprint.reasons if fingerprint else ()
        else:
            self._apply_to_trial(kind, event, at)
        if self.sessions:
            self.sessions[-1].last_s = at

    def _apply_to_trial(self, kind: str, event: Mapping[str, Any], at: float) -> None:
        if kind == "started":
            trial = self._trial(event)
            trial.config = dict(event["config"])
            trial.started_s = at if trial.started_s is None else trial.started_s
            trial.outcome = trial.ended_s = trial.waiting = None
            trial.cause = _text(event.get("cause"))
            trial.checkpoints_removed, trial.test_metrics = False, {}
        elif kind == "created":
            trial = self._trial(event)
            trial.waiting = trial.waiting or "pending"
        elif kind == "paused":
            trial = self.trials[event["trial_id"]]
            trial.waiting, trial.cause = "paused", _text(event.get("cause"))
        elif kind == "removed":
            self.trials[event["trial_id"]].checkpoints_removed = True
        elif kind == "tested":
            trial = self.trials[event["trial_id"]]
            metrics = {str(name): float(it) for name, it in dict(event["metrics"]).items()}
            trial.test_metrics, trial.tested_s = metrics, at
        elif kind == "ended":
            outcome, last = Outcome(event["outcome"]), dict(event.get("last", {}))
            if last and not is_valid_result(last):
                raise ValueError("no result")
            trial = self._trial(event)
            trial.outcome, trial.ended_s, trial.cause = outcome, at, _text(event["cause"])
            trial.waiting, trial.last = None, last

    def _begin_session(self, process: int, host: str, at: float) -> None:
        self.sessions.append(Session(at, at, process=process, host=host))
        self.suspension = None
        for trial in self.trials.values():
            if trial.outcome in (None, Outcome.INTERRUPTED):
                trial.outcome = trial.ended_s = trial.cause = None
                trial.waiting = "pending"

    def _trial(self, event: Mapping[str, Any]) -> TrialEvents:
        trial_id = str(event["trial_id"])
        if trial_id not in self.trials:
            number = int(event["number"])
            if not 0 <= number <= _LAST_NUMBER:
                raise ValueError(f"no number of a trial: {number}")
            self.trials[trial_id] = TrialEvents(trial_id, number, dict(event["config"]))
        return self.trials[trial_id]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
