"""The record of a sweep as other processes see it: while it is written, after a kill, and later."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.record import (
    Record,
    SweepHistory,
    database,
    post_request,
    recorded_checkpoints,
    recorded_pickle,
    recorded_results,
    trial_results,
    trials_with_checkpoints,
)

WRITER = """
import sys
from pathlib import Path
from tune_tf.record import Record
record = Record(Path(sys.argv[1])).begin_session()
record.record_creation("a", 0, {"width": 4}, name="trial_00000", tag="1")
record.record_start("a", {"width": 4}, devices="1 CPU")
number = 0
while True:
    number += 1
    record.record_result(0, {"loss": 1 / number, "training_iteration": number})
    print(number, flush=True)
"""


def begin(record, trial_id="a", number=0, config=None):
    """Record a trial that starts."""
    config = config or {"width": 4}
    record.record_creation(
        trial_id, number, config, name=f"trial_{number:05d}", tag=f"{number + 1}"
    )
    record.record_start(trial_id, config, devices="1 CPU")


@pytest.fixture
def killed(tmp_path):
    """Return a folder whose writer was killed, and how many results it had written at least."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
    ) as writer:
        told = [int(writer.stdout.readline()) for _ in range(200)]
        writer.kill()
        told += [int(line) for line in writer.stdout.read().split()]
    return tmp_path, max(told)


def test_what_was_recorded_before_a_kill_is_there_and_nothing_twice(killed):
    folder, count = killed
    results = recorded_results(folder, 0)
    assert [each["training_iteration"] for each in results] == list(range(1, len(results) + 1))
    assert len(results) in (count, count + 1)
    trial = SweepHistory.read(folder).trials["a"]
    assert (trial.state, trial.last) == ("running", results[-1])
    with Record(folder) as record:
        assert record.history.trials["a"].state == "running"
        record.begin_session()
        assert record.history.trials["a"].state == "pending"
        record.record_result(0, {"loss": 0.0, "training_iteration": len(results) + 1})
    assert len(recorded_results(folder, 0)) == len(results) + 1


def test_of_a_folder_that_may_not_be_written_to_a_copy_is_read(killed, monkeypatch):
    folder, _ = killed
    results = recorded_results(folder, 0)
    connect = database._connect

    def refuse(path, mode):
        if path == folder:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(path, mode)

    monkeypatch.setattr(database, "_connect", refuse)
    assert recorded_results(folder, 0) == results


def test_a_sweep_that_has_ended_is_one_file_that_readers_leave_alone(tmp_path):
    with Record(tmp_path) as record:
        begin(record)
        record.record_end("a", Outcome.COMPLETED)
        assert (tmp_path / "sweep.db-wal").exists()
    whole = (tmp_path / "sweep.db").read_bytes()
    SweepHistory.read(tmp_path)
    assert (tmp_path / "sweep.db").read_bytes() == whole
    assert [path.name for path in tmp_path.glob("sweep.db*")] == ["sweep.db"]


def test_a_copy_that_is_made_while_it_is_written_can_be_read(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    with Record(one) as record:
        begin(record)
        record.record_result(0, {"loss": float("nan"), "training_iteration": 1})
        shutil.copytree(one, two)
        record.record_end("a", Outcome.DIVERGED)
    assert SweepHistory.read(one).trials["a"].outcome is Outcome.DIVERGED
    assert SweepHistory.read(two).trials["a"].state == "running"
    assert str(recorded_results(two, 0)) == "[{'loss': nan, 'training_iteration': 1}]"


def test_requests_reach_a_driver_once_and_in_order_and_those_for_trials_the_next_one_too(tmp_path):
    with Record(tmp_path) as record:
        post_request(tmp_path, {"trial_ids": ["a"]})
        post_request(tmp_path, {"stop": "end"})
        assert record.take_requests() == [{"trial_ids": ["a"]}, {"stop": "end"}]
        assert record.take_requests() == []
        post_request(tmp_path, {"stop": "interrupt"})
    with Record(tmp_path) as record:
        assert record.take_requests() == [{"trial_ids": ["a"]}]


@pytest.mark.parametrize(("layout", "kind"), [(1, "an older"), (99, "a newer")])
def test_a_record_of_another_layout_is_refused(tmp_path, layout, kind):
    with Record(tmp_path) as record:
        record._database.execute(f"PRAGMA user_version = {layout}")
    for read in (SweepHistory.read, Record):
        with pytest.raises(SweepConflictError, match=f"written by {kind} tune_tf than this"):
            read(tmp_path)


def record_step(record, number=1):
    """Record what a step of Tune's may change."""
    record.record_result(0, {"loss": 1 / number, "training_iteration": number})
    record.record_checkpoint(
        0, f"trial_00000/checkpoint_{number:06d}", {"training_iteration": number}
    )
    record.record_pickle("scheduler", b"%d" % number)
    record.record_pause("a")


def seen(folder):
    trial = SweepHistory.read(folder).trials["a"]
    return trial.state, trial.last.get("training_iteration"), len(trial.checkpoints)


def test_a_step_is_seen_at_its_end_and_then_whole_or_not_at_all(tmp_path):
    with Record(tmp_path) as record:
        begin(record)
        record.begin_step()
        record_step(record)
    with Record(tmp_path) as record:
        record.begin_step()
        record_step(record)
        assert seen(tmp_path) == ("running", None, 0)
        assert recorded_pickle(tmp_path, "scheduler") is None
        record.end_step()
        assert seen(tmp_path) == ("paused", 1, 1)
        assert recorded_pickle(tmp_path, "scheduler") == b"1"


def test_a_step_that_the_disk_has_no_room_for_is_recorded_with_the_next_one(tmp_path):
    with Record(tmp_path) as record:
        begin(record)
        record.begin_step()
        record_step(record)
        record.record_result(0, {"text": "x" * 99_000, "training_iteration": 2})
        record._database.execute("PRAGMA max_page_count = 1")
        with pytest.raises(OSError, match="full") as raised:
            record.end_step()
        assert raised.value.filename == str(tmp_path / "sweep.db")
        assert seen(tmp_path) == ("running", None, 0)
        record._database.execute("PRAGMA max_page_count = 9999")
        record.begin_step()
        record_step(record, 3)
        record.end_step()
        assert seen(tmp_path) == ("paused", 3, 2)
    assert [it["training_iteration"] for it in recorded_results(tmp_path, 0)] == [1, 2, 3]


def test_trials_have_their_checkpoints_oldest_first_until_these_are_forgotten(tmp_path):
    with Record(tmp_path) as record:
        for number, trial_id in enumerate("abc"):
            begin(record, trial_id, number)
        for path in ("trial_00000/checkpoint_000009", "trial_00000/checkpoint_000010"):
            record.record_checkpoint(0, path, {"training_iteration": int(path[-2:]), "config": {}})
        record.record_checkpoint(2, "trial_00000/checkpoint_000009", {"training_iteration": 9})
        donor, clone = trials_with_checkpoints(tmp_path)
        assert (donor.trial_id, [path[-2:] for path in donor.checkpoints]) == ("a", ["09", "10"])
        assert (clone.trial_id, clone.checkpoints) == ("c", donor.checkpoints[:1])
        assert list(recorded_checkpoints(tmp_path, 0).values()) == [
            {"training_iteration": 10},
            {"training_iteration": 9},
        ]
        record.forget_checkpoints(donor.checkpoints[:1])
        assert [trial.trial_id for trial in trials_with_checkpoints(tmp_path)] == ["a"]


def test_a_session_continues_trials_but_those_that_have_ended_or_are_paused(tmp_path):
    with Record(tmp_path) as record:
        record.begin_session()
        for number, trial_id in enumerate("abcd"):
            begin(record, trial_id, number)
        record.record_end("a", Outcome.COMPLETED)
        record.record_end("b", Outcome.INTERRUPTED)
        record.record_pause("c", "chance: 3%")
        record.record_end("c", Outcome.INTERRUPTED)
        record.record_spending(60.0, 2.0, 1.0)
        record.begin_session({"num_samples": 9})
    history = SweepHistory.read(tmp_path)
    trials = history.trials.values()
    assert [trial.state for trial in trials] == ["ended", "pending", "paused", "pending"]
    assert [trial.goes_on for trial in trials] == [False, True, True, True]
    assert [it.time_s for it in history.sessions] == [60, 60]
    assert [it.budget for it in history.sessions] == [{}, {"num_samples": 9}]


def test_a_result_has_the_config_that_it_was_trained_with_where_that_has_changed(tmp_path):
    with Record(tmp_path) as record:
        begin(record)
        record.record_result(0, {"training_iteration": 1, "config": {"width": 4}})
        record.record_clone("a", {"width": 5}, 1, cloned_from="b")
        record.record_result(0, {"training_iteration": 1, "config": {}}, {"width": 5}, exploits=1)
    first, second = trial_results(tmp_path, 0)
    assert (first.metrics, first.config, first.exploits) == ({"training_iteration": 1}, None, 0)
    assert (second.config, second.exploits) == ({"width": 5}, 1)
    trial = SweepHistory.read(tmp_path).trials["a"]
    assert (trial.config, trial.suggested, trial.cloned_from) == ({"width": 5}, {"width": 4}, "b")


def test_a_file_without_tables_is_that_of_a_sweep_that_has_not_begun(tmp_path):
    (tmp_path / "sweep.db").touch()
    assert SweepHistory.read(tmp_path) == SweepHistory()
    assert recorded_results(tmp_path, 0) == []


def test_a_lock_of_another_process_is_no_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_S", 0.1)
    with (
        Record(tmp_path) as record,
        contextlib.closing(sqlite3.connect(tmp_path / "sweep.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SweepConflictError, match="locked; end the process that has locked it"):
            begin(record)
        other.execute("ROLLBACK")
        begin(record)


def test_a_record_that_was_moved_away_is_noticed(tmp_path):
    with Record(tmp_path) as record:
        (tmp_path / "sweep.db").rename(tmp_path / "elsewhere")
        with pytest.raises(FileNotFoundError):
            record.take_requests()


@pytest.mark.parametrize("value", [{("a", 1): 2}, {1: {(2,): 3}}])
def test_values_that_json_cannot_hold_are_texts(tmp_path, value):
    with Record(tmp_path) as record:
        record.record_result(0, {"odd": value, "loss": 0.5, "training_iteration": 1})
    (result,) = recorded_results(tmp_path, 0)
    assert result == {"odd": repr(value), "loss": 0.5, "training_iteration": 1}


def test_the_record_of_a_shared_folder_follows_the_umask(tmp_path):
    before = os.umask(0o002)
    try:
        with Record(tmp_path):
            assert (tmp_path / "sweep.db").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_a_damaged_record_is_refused_by_reader_and_driver(tmp_path):
    with Record(tmp_path) as record:
        begin(record)
    (tmp_path / "sweep.db").write_bytes(b"not a database" * 500)
    for read in (SweepHistory.read, Record):
        with pytest.raises(SweepConflictError, match=r"sweep.db, the record of the sweep.*copy"):
            read(tmp_path)
