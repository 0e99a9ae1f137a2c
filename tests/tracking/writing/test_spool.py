import pytest
from spools import read, result

from tune_tf.tracking.writing.spool import Spool


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
