import os

import pytest
from spools import read, result

from tune_tf.errors import SweepConflictError
from tune_tf.tracking.writing.spool import Spool


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
    spool.close()
    Spool(path).close()
