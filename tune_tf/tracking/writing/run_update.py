"""Update of one MLflow run, as plain data that can be merged."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PARENT = ""
"""Key of the parent run; the key of a trial's run is the trial's id."""

SWEEP_ID_TAG = "tune_tf.sweep_id"
TRIAL_ID_TAG = "tune_tf.trial_id"
CREATED_BY_TRIAL_TAG = "tune_tf.created_by_trial"  # few runs have it
PARENT_RUN_TAG = "mlflow.parentRunId"
STOP_REASON_TAG = "tune_tf.stop_reason"
STOP_CAUSE_TAG = "tune_tf.stop_cause"


def now_ms() -> int:
    """Return the time, in milliseconds since the epoch."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Report:
    """Metrics of one step: a training iteration or, for the parent, the number of ended trials."""

    step: int
    time_ms: int  # since the epoch
    metrics: Mapping[str, float]
    once: bool = True
    """Whether to skip the report if the run has one of this step or a later one."""


@dataclass
class RunUpdate:
    """Update of one MLflow run; written parts are removed, so that nothing is written twice.

    Args:
        run: Id of the trial, or :data:`PARENT`.
        time_ms: Time of the update, in milliseconds since the epoch; start of a new run.
        name: New name of the run, if any.
        params: Parameters; those of a run never change.
        tags: Tags; the last value wins.
        reports: Reports, in order of their steps.
        texts: Artifact texts, by path.
        files: Local files to upload as artifacts, by artifact path.
        reopen: Whether to set an ended run to running.
        status: MLflow's status of the ended run.
        end_ms: End of the run, in milliseconds since the epoch.
        fresh: Whether the trial starts from scratch; an existing run with its id is then another
            trial's unless the parameters are equal.
        trials: For the parent at the end: ids of all trials of Tune. Other runs are deleted, and
            running ones are ended.
        ends: With ``trials``: outcomes of trials that this driver did not track, by id. A killed
            driver may have left runs of them.
    """

    run: str
    time_ms: int = field(default_factory=now_ms)
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
        """Number of values to write."""
        num_points = sum(len(report.metrics) for report in self.reports)
        num_others = len(self.params) + len(self.tags) + len(self.texts) + len(self.files)
        single_values = (self.name, self.status, self.trials)
        return num_points + num_others + sum(value is not None for value in single_values)

    def copy(self) -> "RunUpdate":
        """Return an independent copy."""
        return RunUpdate.from_json(self.to_json())

    def to_json(self) -> str:
        """Return the update as one line of JSON, with NaN and infinity as Python writes them."""
        return _to_json({key: each for key, each in vars(self).items() if each != _EMPTY[key]})

    @classmethod
    def from_json(cls, text: str) -> "RunUpdate":
        """Restore the output of :meth:`to_json`.

        Raises:
            ValueError: The text is damaged or incomplete.
        """
        try:
            data = json.loads(text)
            data["reports"] = [Report(**report) for report in data.get("reports", ())]
            if "trials" in data:
                data["trials"] = frozenset(data["trials"])
            return cls(**data)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"not an entry: {text[:80]!r} ({error})") from error

    def merge(self, later: "RunUpdate") -> None:
        """Merge a later update of the same run into this one."""
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
            self.trials, self.ends = None, {}  # a resumed sweep is reconciled at its own end
        self.reopen = self.reopen or later.reopen
        self.fresh = self.fresh or later.fresh
        if later.trials is not None:
            self.trials, self.ends = later.trials, later.ends


def _plain(value: Report | frozenset[str]) -> Any:
    return sorted(value) if isinstance(value, frozenset) else vars(value)


_to_json = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_plain).encode
_EMPTY: dict[str, Any] = vars(RunUpdate(PARENT, -1)) | {"run": None}


def split_into_batches(reports: list[Report], limit: int) -> Iterator[list[Report]]:
    """Yield reports in groups of at most ``limit`` metrics; split only larger reports."""
    group: list[Report] = []
    num_points = 0
    for report in reports:
        for part in _split_report(report, limit):
            if group and num_points + len(part.metrics) > limit:
                yield group
                group, num_points = [], 0
            group.append(part)
            num_points += len(part.metrics)
    if group:
        yield group


def _split_report(report: Report, limit: int) -> Iterator[Report]:
    if len(report.metrics) <= limit:
        yield report
        return
    items = list(report.metrics.items())
    for start in range(0, len(items), limit):
        part = dict(items[start : start + limit])
        # The rest of a report must not be skipped because the run has its step.
        yield Report(report.step, report.time_ms, part, report.once and start == 0)
