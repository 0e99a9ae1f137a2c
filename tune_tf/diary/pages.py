"""What a sweep's diary tells, read and put together."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tune_tf.outcome import Outcome

DIARY = "diary.lines"  # Tune copies every .json of a sweep's folder about
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
    """

    driver: str
    begun_s: float
    last_s: float
    over: bool = False
    interrupted: bool = False


@dataclass
class TrialPage:
    """One trial.

    Args:
        trial_id: Ray Tune's id.
        number: Place in the order of proposal, from 0.
        config: Its sampled values when it last started.
        started_s: When it first started, in seconds since 1970; None if it never did.
        ended_s: When it ended; None if it has not.
        outcome: How it ended; None if it has not.
        cause: Why, where there is more to say.
        waits: ``"paused"`` by the scheduler, or ``"pending"`` since the sweep was resumed; None for
            neither.
    """

    trial_id: str
    number: int
    config: Mapping[str, Any]
    started_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    waits: str | None = None


@dataclass
class Pages:
    """A diary, put together.

    Args:
        sessions: In order.
        trials: By Tune's id, in the order in which they first started.
        run_id: MLflow's id of the sweep's parent run; None if it is not known.
        run_ids: MLflow's ids of the trials' runs, by Tune's id, as far as they are known.
    """

    sessions: list[Session] = field(default_factory=list)
    trials: dict[str, TrialPage] = field(default_factory=dict)
    run_id: str | None = None
    run_ids: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Pages":
        """Read the diary of a sweep's folder; an empty one where there is none.

        A line that is torn or damaged is passed over.
        """
        pages = cls()
        for event in _events_of(folder / DIARY):
            try:
                pages._add(event)
            except (KeyError, TypeError, ValueError):
                continue
        return pages

    def _add(self, event: Mapping[str, Any]) -> None:
        at, kind = float(event["at"]), event["event"]
        if kind == "begun":
            self._begin(f"process {event['process']} on {event['host']}", at)
        elif kind == "tracked":
            self.run_id = str(event["run_id"])
        elif kind == "started":
            page = self._page(event)
            page.config = dict(event["config"])
            page.started_s = at if page.started_s is None else page.started_s
            page.outcome = page.ended_s = page.cause = page.waits = None
        elif kind == "paused":
            self.trials[event["trial_id"]].waits = "paused"
        elif kind == "ended":
            outcome = Outcome.of_tag(event["outcome"])
            page = self._page(event)
            page.outcome, page.ended_s, page.cause = outcome, at, event["cause"]
            page.waits = None
        elif kind == "over":
            self.run_ids.update(event["run_ids"])
            if self.sessions:
                self.sessions[-1].over = True
                self.sessions[-1].interrupted = bool(event["interrupted"])
        if self.sessions:
            self.sessions[-1].last_s = at

    def _begin(self, driver: str, at: float) -> None:
        self.sessions.append(Session(driver, at, at))
        for page in self.trials.values():
            if page.outcome in (None, Outcome.INTERRUPTED):
                page.outcome = page.ended_s = page.cause = None
                page.waits = "pending"

    def _page(self, event: Mapping[str, Any]) -> TrialPage:
        trial_id = str(event["trial_id"])
        if trial_id not in self.trials:
            page = TrialPage(trial_id, int(event["number"]), dict(event["config"]))
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
