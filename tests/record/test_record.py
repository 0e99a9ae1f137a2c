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
from tune_tf.record import Record, SweepHistory, database, post_request, recorded_results

WRITER = """
import sys
from pathlib import Path
from tune_tf.record import Record
record = Record(Path(sys.argv[1])).begin_session()
record.record_start("a", 0, {"width": 4})
number = 0
while True:
    number += 1
    record.record_result(0, {"loss": 1 / number, "training_iteration": number})
    print(number, flush=True)
"""


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
        record.record_end("a", 0, {}, Outcome.COMPLETED)
        assert (tmp_path / "sweep.db-wal").exists()
    whole = (tmp_path / "sweep.db").read_bytes()
    SweepHistory.read(tmp_path)
    assert (tmp_path / "sweep.db").read_bytes() == whole
    assert [path.name for path in tmp_path.glob("sweep.db*")] == ["sweep.db"]


def test_a_copy_that_is_made_while_it_is_written_can_be_read(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    with Record(one) as record:
        record.record_start("a", 0, {})
        record.record_result(0, {"loss": float("nan"), "training_iteration": 1})
        shutil.copytree(one, two)
        record.record_end("a", 0, {}, Outcome.DIVERGED)
    assert SweepHistory.read(one).trials["a"].outcome is Outcome.DIVERGED
    assert SweepHistory.read(two).trials["a"].state == "running"
    assert str(recorded_results(two, 0)) == "[{'loss': nan, 'training_iteration': 1}]"


def test_requests_reach_the_driver_once_and_in_order_and_not_the_next_one(tmp_path):
    with Record(tmp_path) as record:
        post_request(tmp_path, {"number": 1})
        post_request(tmp_path, {"number": 2})
        assert [each["number"] for each in record.take_requests()] == [1, 2]
        assert record.take_requests() == []
        post_request(tmp_path, {"number": 3})
    with Record(tmp_path) as record:
        assert record.take_requests() == []


def test_a_record_of_a_later_layout_is_refused(tmp_path):
    with Record(tmp_path) as record:
        record._database.execute("PRAGMA user_version = 99")
    for read in (SweepHistory.read, Record):
        with pytest.raises(SweepConflictError, match="written by a newer tune_tf than this"):
            read(tmp_path)


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
            record.record_start("a", 0, {})
        other.execute("ROLLBACK")
        record.record_start("a", 0, {})


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
        record.record_start("a", 0, {})
    (tmp_path / "sweep.db").write_bytes(b"not a database" * 500)
    for read in (SweepHistory.read, Record):
        with pytest.raises(SweepConflictError, match=r"sweep.db, the record of the sweep.*copy"):
            read(tmp_path)


def test_a_full_disk_is_an_error_that_leaves_the_record_whole(tmp_path, monkeypatch):
    with Record(tmp_path) as record:
        record.record_start("a", 0, {})
        record._database.execute("PRAGMA max_page_count = 1")
        with pytest.raises(OSError, match="full") as raised:
            record.record_result(0, {"text": "x" * 99_000, "training_iteration": 1})
        assert raised.value.filename == str(tmp_path / "sweep.db")
        count = len(recorded_results(tmp_path, 0))
        record._database.execute("PRAGMA max_page_count = 9999")
        record.record_result(0, {"training_iteration": 2})
    assert len(recorded_results(tmp_path, 0)) == count + 1
