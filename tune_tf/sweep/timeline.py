"""Timeline of a sweep as a Chrome trace, which Perfetto and chrome://tracing open.

It has the phases of the driver, MLflow's store, a row per slot with its trials, and a row per
process of Ray with its calls: setup (TensorFlow and data), epochs and checkpoints.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray

from tune_tf.atomic_files import read_json_lines, write_atomically
from tune_tf.events import EVENT_LOG

_log = logging.getLogger(__name__)

_LONGEST_START_S = 300.0  # a process that is older did something else before
_CALLS = {
    "__init__": "setup",
    "reset": "setup of the next trial",
    "train": "epoch",
    "save": "checkpoint",
}
_DRIVER, _STORE = "driver", "MLflow"


class Span(NamedTuple):
    """Period in a row of a timeline, in seconds since 1970."""

    row: str
    name: str
    start_s: float
    end_s: float


def write_timeline(path: Path, folder: Path) -> None:
    """Write the timeline of the last session of a sweep's folder, while its Ray cluster runs.

    An error becomes a warning, as the sweep has its result.
    """
    try:
        spans = [*driver_spans(folder, psutil.Process(os.getpid()).create_time()), *_call_spans()]
        write_atomically(path, json.dumps({"traceEvents": chrome_events(spans)}), on_disk=False)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        _log.warning("the timeline could not be written to %s: %s", path, error)


def driver_spans(folder: Path, process_s: float) -> Iterator[Span]:
    """Yield the spans that a sweep's event log tells; its driver's process began at a time."""
    events: list[dict[str, Any]] = []
    for event in read_json_lines(folder / EVENT_LOG, lambda it: {"at", "event"} <= it.keys()):
        events = [event] if event["event"] == "begun" else [*events, event]
    if not events:
        return
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event["event"], []).append(event["at"])
    begun_s, end_s = events[0]["at"], events[-1]["at"]
    first_s = min(times.get("started", []), default=end_s)
    last_s = max(times.get("ended", []), default=end_s)
    if begun_s - process_s <= _LONGEST_START_S:
        yield Span(_DRIVER, "imports, checks, start of Ray", process_s, begun_s)
    yield Span(_DRIVER, "Tune, first processes: TensorFlow, data", begun_s, first_s)
    yield Span(_DRIVER, "trials", first_s, last_s)
    yield Span(_DRIVER, "best model, report", last_s, end_s)
    for tracked_s in times.get("tracked", []):
        yield Span(_STORE, "import, store, run of the sweep", begun_s, tracked_s)
    yield from _trial_spans(events)


def _trial_spans(events: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield a span for each stretch in which a trial ran, in the first free slot."""
    slots: list[str | None] = []  # the trial in each
    begun: dict[str, tuple[float, int]] = {}
    for event in events:
        trial, at = str(event.get("trial_id")), event["at"]
        if event["event"] == "started" and trial not in slots:
            slots = slots if None in slots else [*slots, None]
            slots[slots.index(None)], begun[trial] = trial, (at, event["number"])
        elif event["event"] in ("ended", "paused") and trial in slots:
            slot, (start_s, number) = slots.index(trial), begun[trial]
            end = event.get("outcome", event["event"])
            yield Span(f"slot {slot + 1}", f"trial {number}: {end}", start_s, at)
            slots[slot] = None


def _call_spans() -> Iterator[Span]:
    """Yield the calls to the processes of this job, as far as Ray still knows them."""
    job = ray.get_runtime_context().get_job_id()
    for event in ray.timeline() or ():
        kind, _, call = str(event.get("cat", "")).removeprefix("task::").rpartition(".")
        task = str(event.get("args", {}).get("task_id", ""))
        if event.get("cat", "").startswith("task::") and task.endswith(job):
            row = f"{kind.rpartition(':')[2]} {event['tid'].removeprefix('worker:')[:8]}"
            start_s = event["ts"] / 1e6
            yield Span(row, _CALLS.get(call, call), start_s, start_s + event["dur"] / 1e6)


def chrome_events(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return spans as events of Chrome's trace format, with the rows by the time they start."""
    ordered = sorted(spans, key=lambda span: (span.row not in (_DRIVER, _STORE), span.start_s))
    rows = list(dict.fromkeys(span.row for span in ordered))
    names = [
        {"ph": "M", "name": name, "pid": 0, "tid": number, "args": {key: value}}
        for number, row in enumerate(rows)
        for name, key, value in (
            ("thread_name", "name", row),
            ("thread_sort_index", "sort_index", number),
        )
    ]
    return names + [
        {
            "ph": "X",
            "name": span.name,
            "pid": 0,
            "tid": rows.index(span.row),
            "ts": round(span.start_s * 1e6),
            "dur": max(0, round((span.end_s - span.start_s) * 1e6)),
        }
        for span in ordered
    ]
