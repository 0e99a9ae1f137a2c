"""Who may drive a sweep: the lock on its diary, and what is done without locks."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest
from sweep_in_progress import sweep, sweeps  # noqa: F401 - fixtures

from tune_tf.errors import SweepConflictError
from tune_tf.events import EVENT_LOG, EventLog, has_driver


@pytest.fixture
def without_locks(monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)


def begun_by(path, process, host):
    event = {"at": 1.0, "event": "begun", "process": process, "host": host, "tune_tf": "0"}
    with (path / EVENT_LOG).open("a") as file:
        file.write(json.dumps(event) + "\n")


@pytest.fixture
def other():
    """A process that runs."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_second_driver_is_told_who_holds_the_sweep(sweep):  # noqa: F811
    told = f"process {os.getpid()} on {socket.gethostname()}"
    with pytest.raises(SweepConflictError, match=rf"still running \({told}\)"):
        EventLog(sweep.path)


def test_without_locks_a_warning_says_who_drove_it_last(tmp_path, without_locks, caplog):
    begun_by(tmp_path, 12, "elsewhere")
    with EventLog(tmp_path):
        pass
    assert "without locks" in caplog.text
    assert "the last one was process 12 on elsewhere" in caplog.text


def test_without_locks_a_driver_that_runs_on_this_machine_is_found(tmp_path, without_locks, other):
    begun_by(tmp_path, other.pid, socket.gethostname())
    assert has_driver(tmp_path)
    with pytest.raises(SweepConflictError, match=f"process {other.pid} on"):
        EventLog(tmp_path)


def test_without_locks_a_driver_that_was_killed_is_not_waited_for(tmp_path, without_locks, other):
    begun_by(tmp_path, other.pid, socket.gethostname())
    other.kill()
    other.wait()
    assert not has_driver(tmp_path)
    with EventLog(tmp_path):
        pass
