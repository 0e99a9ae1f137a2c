"""The timeline of a sweep tells what its event log and Ray know, in the form that Chrome opens."""

import json

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep import run_sweep
from tune_tf.sweep.timeline import Span, chrome_events, driver_spans

EVENTS = (
    {"at": 10.0, "event": "begun", "process": 1, "host": "a"},
    {"at": 11.0, "event": "over"},
    {"at": 100.0, "event": "begun", "process": 1, "host": "a"},
    {"at": 103.0, "event": "tracked", "run_id": "r"},
    {"at": 105.0, "event": "started", "trial_id": "x", "number": 0, "config": {}},
    {"at": 105.5, "event": "started", "trial_id": "y", "number": 1, "config": {}},
    {"at": 106.0, "event": "started", "trial_id": "x", "number": 0, "config": {}},  # a retry
    {"at": 107.0, "event": "ended", "trial_id": "x", "number": 0, "outcome": "completed"},
    {"at": 107.0, "event": "started", "trial_id": "z", "number": 2, "config": {}},
    {"at": 108.0, "event": "paused", "trial_id": "y"},
    {"at": 109.0, "event": "ended", "trial_id": "z", "number": 2, "outcome": "pruned"},
    {"at": 112.0, "event": "over"},
)


def spans(folder, events=EVENTS, process_s=98.0):
    lines = (json.dumps(event) for event in events)
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return list(driver_spans(folder, process_s))


def test_the_last_session_is_told_by_phases_and_slots(tmp_path):
    assert spans(tmp_path) == [
        Span("driver", "imports, checks, start of Ray", 98.0, 100.0),
        Span("driver", "Tune, first processes: TensorFlow, data", 100.0, 105.0),
        Span("driver", "trials", 105.0, 109.0),
        Span("driver", "best model, report", 109.0, 112.0),
        Span("MLflow", "import, store, run of the sweep", 100.0, 103.0),
        Span("slot 1", "trial 0: completed", 105.0, 107.0),
        Span("slot 2", "trial 1: paused", 105.5, 108.0),
        Span("slot 1", "trial 2: pruned", 107.0, 109.0),
    ]


def test_what_a_process_did_long_before_the_sweep_is_left_out(tmp_path):
    assert spans(tmp_path, process_s=-1000.0)[0].start_s == 100.0


@pytest.mark.parametrize("num", range(3, len(EVENTS)))
def test_a_session_that_was_cut_off_has_a_timeline(tmp_path, num):
    found = spans(tmp_path, EVENTS[:num])
    assert all(span.start_s <= span.end_s for span in found)


def test_chrome_is_given_microseconds_in_named_rows():
    named, ordered, event = chrome_events([Span("slot 1", "trial 0: completed", 1.5, 2.0)])

    assert named == {
        "ph": "M",
        "name": "thread_name",
        "pid": 0,
        "tid": 0,
        "args": {"name": "slot 1"},
    }
    assert ordered["args"] == {"sort_index": 0}
    assert event == {
        "ph": "X",
        "name": "trial 0: completed",
        "pid": 0,
        "tid": 0,
        "ts": 1_500_000,
        "dur": 500_000,
    }


@pytest.mark.parametrize("name", ["missing/trace.json", "."])
def test_a_timeline_that_cannot_be_written_is_refused_before_the_sweep(tmp_path, sweep, name):
    with pytest.raises(InvalidSettingsError, match="timeline cannot be written"):
        run_sweep(sweep.folder.config, timeline=tmp_path / name)
