"""Who may drive a sweep: the lock of its folder."""

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest
from sweep_in_progress import sweep, sweeps  # noqa: F401 - fixtures

from tune_tf.errors import SweepConflictError, UnknownSweepError, UnwritableStorageError
from tune_tf.record import Record, has_driver
from tune_tf.sweep_folder import SweepFolder


@pytest.fixture
def without_locks(monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_driver_is_told_who_holds_the_sweep(sweep):  # noqa: F811
    told = f"process {os.getpid()} on {socket.gethostname()}"
    with pytest.raises(SweepConflictError, match=rf"still running \({told}\)"):
        Record(sweep.path)


def test_a_file_system_without_locks_is_refused(tmp_path, without_locks):
    with pytest.raises(UnwritableStorageError, match="choose a storage_path on a file system with"):
        Record(tmp_path)
    assert not has_driver(tmp_path)


def test_a_driver_is_seen_until_it_has_ended(tmp_path):
    assert not has_driver(tmp_path)
    with Record(tmp_path):
        assert has_driver(tmp_path)
    assert not has_driver(tmp_path)


@pytest.mark.parametrize("name", [".driver-lock", "sweep.db"])
def test_a_sweep_of_another_user_is_not_driven(name, tmp_path, monkeypatch):
    def denied(path, *arguments, _open=os.open):
        if path == tmp_path / name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return _open(path, *arguments)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(SweepConflictError, match="Permission denied; its owner can continue"):
        Record(tmp_path)


def test_a_sweep_whose_folder_may_not_be_read_is_refused(sweep, monkeypatch):  # noqa: F811
    def denied(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", denied)
    with pytest.raises(UnknownSweepError, match="cannot be read: Permission denied; its owner can"):
        SweepFolder.open(sweep.path)


def test_the_times_of_a_record_go_on_though_the_machines_clock_was_set_back(tmp_path):
    for now in (1000.0, 400.0):
        with Record(tmp_path, clock=lambda now=now: now) as record:
            record.begin_session()
    with Record(tmp_path, clock=lambda: 1100.0) as record:
        record.begin_session()
        assert [session.begun_s for session in record.history.sessions] == [1000, 1000, 1100]
