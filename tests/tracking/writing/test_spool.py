import fcntl
import os

import pytest
from spools import lines, read, result

from tune_tf.errors import SweepConflictError
from tune_tf.tracking.writing.spool import Spool


def is_spool_locked(path):
    """Return whether a process holds the spool, or has just left it locked."""
    try:
        file = os.open(path / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def test_what_is_appended_is_read_by_the_next_process_in_order(path):
    first = Spool(path, {"sweep_id": "s"}, segment_bytes=200)
    for number in range(1, 21):
        first.append(number, result("t", number))
    assert len(list(path.glob("*.jsonl"))) > 3
    first.close()

    second = Spool(path)
    assert second.settings == {"sweep_id": "s"}
    assert (second.last, second.num_left) == (20, 20)
    assert [number for number, _ in second.read(0, 100)] == list(range(1, 21))
    assert [number for number, _ in second.read(17, 2)] == [18, 19]
    second.close()


def test_a_spool_of_which_all_is_delivered_leaves_nothing(path):
    spool = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        spool.append(number, result("t", number))
    spool.discard_below(21)
    spool.close()
    assert list(path.parent.iterdir()) == []


def test_an_entry_stays_until_all_below_a_higher_number_is_delivered(path):
    spool = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        spool.append(number, result("t", number))
    for number in range(1, 21):
        spool.discard_below(number)
        assert [n for n, _ in spool.read(number - 1, 1)] == [number]
    spool.close()


def test_a_file_emptied_in_between_goes_on_to_be_used(path):
    spool = Spool(path, {})
    for number in range(1, 10):
        spool.append(number, result("t", number))
        assert [n for n, _ in spool.read(number - 1, 5)] == [number]
        spool.discard_below(number + 1)
        assert lines(path) == b""
    spool.close()


@pytest.mark.parametrize("kept", range(1, 60, 7))
def test_a_line_torn_by_a_kill_is_left_out_and_does_not_spoil_the_next(path, kept):
    spool = Spool(path, {})
    spool.append(1, result("t", 1))
    spool.append(2, result("t", 2))
    spool.close()
    (file,) = path.glob("*.jsonl")
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:kept])

    after = Spool(path, {})
    assert after.last == 1
    after.append(2, result("t", 22))
    after.close()
    assert read(path) == [(1, 1), (2, 22)]


def test_a_damaged_line_is_left_out_alone(path):
    spool = Spool(path, {})
    for number in (1, 2, 3):
        spool.append(number, result("t", number))
    spool.close()
    (file,) = path.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"n":2,"update":{', b'"n":2,"update":{\xff'))
    assert read(path) == [(1, 1), (3, 3)]


def test_a_spool_in_use_is_refused_and_says_by_whom(path):
    spool = Spool(path, {})
    with pytest.raises(SweepConflictError, match=f"still running .process {os.getpid()} on "):
        Spool(path)
    assert is_spool_locked(path)
    spool.close()
    assert not is_spool_locked(path)


@pytest.mark.parametrize("followed", [False, True], ids=["removed", "replaced"])
def test_a_spool_whose_lock_went_away_while_it_was_taken_is_held_all_the_same(
    path, monkeypatch, followed
):
    lock, flock = path / "lock", fcntl.flock

    def late(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()  # as one who ends does, before giving it free
        if followed:
            lock.touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    spool = Spool(path, {})
    assert is_spool_locked(path)
    spool.close()
