"""What is to be written to one run of a sweep, as plain data that can be merged."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PARENT = ""
"""Key of the sweep's own run; a trial's run goes by the trial's id."""

SWEEP_ID_TAG = "tune_tf.sweep_id"
TRIAL_ID_TAG = "tune_tf.trial_id"
TRIAL_NAME_TAG = "tune_tf.trial_name"
STOP_REASON_TAG = "tune_tf.stop_reason"
FEASIBLE_TAG = "tune_tf.feasible"
STOP_CAUSE_TAG = "tune_tf.stop_cause"


@dataclass(frozen=True)
class Report:
    """Metrics of one moment.

    Args:
        step: Training iteration, or the count of results for the parent.
        time_ms: Milliseconds since the epoch.
        metrics: Name to value.
        once: Whether a run that has a report of this step or a later one needs it no more.
    """

    step: int
    time_ms: int
    metrics: Mapping[str, float]
    once: bool = True


@dataclass
class RunUpdate:
    """What is to be written to one run; what is written is taken out, so that nothing doubles.

    Args:
        run: Id of the trial, or :data:`PARENT`.
        time_ms: When this was put, in milliseconds since the epoch; a new run starts then.
        name: Name of the run, if it is to be named.
        params: Parameters; those of a run never change.
        tags: Tags; the last value counts.
        reports: Metrics, in the order of their steps.
        texts: Artifacts: path below the run's artifacts to text.
        files: Artifacts: path below the run's artifacts to the local file that is uploaded as it.
        reopen: Whether a run that has ended is to run again.
        status: MLflow status that the run ends in.
        end_ms: When the run ended, in milliseconds since the epoch.
        fresh: Whether the trial starts from nothing, so that a run found under its id belongs to
            it only if the parameters are the same.
        trials: On the parent, at the end: all trials that Tune knows. Runs of others are removed,
            and none is left running.
        ends: With these: how trials ended that were not begun again, by id. They may have a run
            nevertheless, of a driver that was killed before it told anyone else.
    """

    run: str
    time_ms: int
    name: str | None = None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    reopen: bool = False
    status: str | None = None
    end_ms: int | None = None
    fresh: bool = False
    trials: frozenset[str] | None = None
    ends: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many values there are to write."""
        points = sum(len(report.metrics) for report in self.reports)
        others = len(self.params) + len(self.tags) + len(self.texts) + len(self.files)
        return points + others + sum(v is not None for v in (self.name, self.status, self.trials))

    def copy(self) -> "RunUpdate":
        """Return an entry of its own with the same things to write."""
        return replace(
            self,
            params=dict(self.params),
            tags=dict(self.tags),
            reports=list(self.reports),
            texts=dict(self.texts),
            files=dict(self.files),
            ends=dict(self.ends),
        )

    def to_json(self) -> str:
        """Return the entry as one line of JSON; NaN and Inf are kept as Python writes them."""
        data: dict[str, Any] = {"run": self.run, "time_ms": self.time_ms}
        for name in _PLAIN:
            if value := getattr(self, name):
                data[name] = value
        if self.end_ms is not None:
            data["end_ms"] = self.end_ms
        if self.reports:
            data["reports"] = [
                [report.step, report.time_ms, report.once, dict(report.metrics)]
                for report in self.reports
            ]
        if self.trials is not None:
            data["trials"] = sorted(self.trials)
        return _to_json(data)

    @classmethod
    def from_json(cls, text: str) -> "RunUpdate":
        """Return the entry that :meth:`to_json` wrote, equal in every value.

        Raises:
            ValueError: The text is not one that it wrote, or only a part of one.
        """
        try:
            data = json.loads(text)
            reports = [
                Report(step, time_ms, metrics, once)
                for step, time_ms, once, metrics in data.pop("reports", ())
            ]
            trials = data.pop("trials", None)
            return cls(
                **data, reports=reports, trials=None if trials is None else frozenset(trials)
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"not an entry: {text[:80]!r} ({error})") from error

    def merge(self, later: "RunUpdate") -> None:
        """Take in what came later for the same run."""
        self.name = later.name or self.name
        self.params.update(later.params)
        self.tags.update(later.tags)
        self.reports.extend(later.reports)
        self.texts.update(later.texts)
        self.files.update(later.files)
        for path in later.texts:
            self.files.pop(path, None)
        for path in later.files:
            self.texts.pop(path, None)
        if later.reopen or later.status is not None:
            self.status, self.end_ms = later.status, later.end_ms
        if later.reopen:
            self.trials, self.ends = None, {}  # a sweep that goes on is settled at its own end
        self.reopen = self.reopen or later.reopen
        self.fresh = self.fresh or later.fresh
        if later.trials is not None:
            self.trials, self.ends = later.trials, later.ends


_PLAIN = ("name", "params", "tags", "texts", "files", "reopen", "status", "fresh", "ends")
_to_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def split_into_batches(reports: list[Report], limit: int) -> Iterator[list[Report]]:
    """Yield reports in groups of at most ``limit`` metrics; a report stays whole if it can."""
    group: list[Report] = []
    points = 0
    for report in reports:
        for part in _parts(report, limit):
            if group and points + len(part.metrics) > limit:
                yield group
                group, points = [], 0
            group.append(part)
            points += len(part.metrics)
    if group:
        yield group


def _parts(report: Report, limit: int) -> Iterator[Report]:
    if len(report.metrics) <= limit:
        yield report
        return
    items = list(report.metrics.items())
    for start in range(0, len(items), limit):
        part = dict(items[start : start + limit])
        # What is left of a report is needed though its step has been begun.
        yield Report(report.step, report.time_ms, part, report.once and start == 0)
