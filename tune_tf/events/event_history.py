"""What a sweep's diary tells, read and put together."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tune_tf.outcome import Outcome

EVENT_LOG = "diary.lines"  # Tune copies every .json of a sweep's folder about
"""Name of the file, in a sweep's folder."""


@dataclass
class Session:
    """A time in which one process drove the sweep.

    Args:
        driver: ``process 71 on node-1``.
        begun_s: When it began, in seconds since 1970.
        last_s: When it last wrote.
        over: Whether it came to its end.
        interrupted: Whether it ended with trials left that a resume would go on with.
        ended_early: Why the sweep ended before all its trials had; None if it did not.
        left: What could not be written down at its end, for a resume to try again.
        process: The driver's process id; 0 if that is not known.
        host: The driver's machine.
    """

    driver: str
    begun_s: float
    last_s: float
    over: bool = False
    interrupted: bool = False
    ended_early: str | None = None
    left: tuple[str, ...] = ()
    process: int = 0
    host: str = ""


@dataclass
class TrialEvents:
    """One trial.

    Args:
        trial_id: Ray Tune's id.
        number: Place in the order of proposal, from 0.
        config: Its sampled values when it last started.
        started_s: When it first started, in seconds since 1970; None if it never did.
        ended_s: When it ended; None if it has not.
        outcome: How it ended; None if it has not.
        cause: Why, where there is more to say.
        waits: ``"paused"`` by the scheduler, or ``"pending"`` for its start or since the sweep was
            resumed; None for neither.
        checkpoints_removed: Whether its checkpoints were removed, to keep the disk free.
        last: Its last result when it ended, without the config; empty if that is not known.
    """

    trial_id: str
    number: int
    config: Mapping[str, Any]
    started_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    waits: str | None = None
    checkpoints_removed: bool = False
    last: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class EventHistory:
    """A diary, put together.

    Args:
        sessions: In order.
        trials: By Tune's id, in the order in which they were first told of.
        held: Why no new trial starts at the moment; None where they do.
        run_id: MLflow's id of the sweep's parent run; None if it is not known.
        run_ids: MLflow's ids of the trials' runs, by Tune's id, as far as they are known.
    """

    sessions: list[Session] = field(default_factory=list)
    trials: dict[str, TrialEvents] = field(default_factory=dict)
    held: str | None = None
    run_id: str | None = None
    run_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "EventHistory":
        """Read the diary of a sweep's folder; an empty one where there is none.

        A line that is torn or damaged is passed over.
        """
        pages = cls()
        for event in _events_of(folder / EVENT_LOG):
            try:
                pages._add(event)
            except (KeyError, TypeError, ValueError):
                continue
        return pages

    def _add(self, event: Mapping[str, Any]) -> None:
        at, kind = float(event["at"]), event["event"]
        if kind == "begun":
            self._begin(int(event["process"]), str(event["host"]), at)
        elif kind == "tracked":
            self.run_id = str(event["run_id"])
        elif kind in ("held", "went on"):
            self.held = event.get("why")
        elif kind == "over":
            self.run_ids.update(event["run_ids"])
            if self.sessions:
                self.sessions[-1].over = True
                self.sessions[-1].interrupted = bool(event["interrupted"])
                self.sessions[-1].ended_early = event.get("ended_early")
                self.sessions[-1].left = tuple(event.get("left", ()))
        else:
            self._turn(kind, event, at)
        if self.sessions:
            self.sessions[-1].last_s = at

    def _turn(self, kind: str, event: Mapping[str, Any], at: float) -> None:
        """Take up what became of a trial."""
        if kind == "started":
            page = self._page(event)
            page.config = dict(event["config"])
            page.started_s = at if page.started_s is None else page.started_s
            page.outcome = page.ended_s = page.cause = page.waits = None
            page.checkpoints_removed = False
        elif kind == "created":
            page = self._page(event)
            page.waits = page.waits or "pending"
        elif kind == "paused":
            self.trials[event["trial_id"]].waits = "paused"
        elif kind == "removed":
            self.trials[event["trial_id"]].checkpoints_removed = True
        elif kind == "ended":
            outcome = Outcome.of_tag(event["outcome"])
            page = self._page(event)
            page.outcome, page.ended_s, page.cause = outcome, at, event["cause"]
            page.waits, page.last = None, dict(event.get("last", {}))

    def _begin(self, process: int, host: str, at: float) -> None:
        driver = f"process {process} on {host}"
        self.sessions.append(Session(driver, at, at, process=process, host=host))
        self.held = None
        for page in self.trials.values():
            if page.outcome in (None, Outcome.INTERRUPTED):
                page.outcome = page.ended_s = page.cause = None
                page.waits = "pending"

    def _page(self, event: Mapping[str, Any]) -> TrialEvents:
        trial_id = str(event["trial_id"])
        if trial_id not in self.trials:
            page = TrialEvents(trial_id, int(event["number"]), dict(event["config"]))
            self.trials[trial_id] = page
        return self.trials[trial_id]


def _events_of(path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
