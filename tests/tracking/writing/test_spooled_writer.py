"""The writer with a spool: nothing is lost by a kill, a full disk or a store that is down."""

import errno
import os
import time

import pytest
from spools import read, result

from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import BackgroundWriter


class Store:
    """Keeps what it is given; down, as long as it is told so."""

    num_refused = 0

    def __init__(self, down=False):
        self.down = down
        self.steps = {}

    def write(self, entry):
        if self.down:
            raise ConnectionError("down")
        self.steps.setdefault(entry.run, []).extend(report.step for report in entry.reports)


@pytest.fixture
def writer_of(path):
    def writer_of(store, **settings):
        settings = {"linger_s": 0.0, "delays_s": (0.0,), "patience_s": 0.0, **settings}
        return BackgroundWriter(lambda: store, Spool(path, segment_bytes=300), **settings)

    return writer_of


def test_the_next_writer_delivers_entries_that_a_store_did_not_take(path, writer_of, caplog):
    writer = writer_of(Store(down=True))
    for step in range(50):
        writer.put(result("t", step))
    writer.close()
    assert writer.lost == 0
    told = [r.getMessage() for r in caplog.records]
    assert told[0] == "MLflow is not available; training continues: down"
    assert told[1:] == [
        "50 entries of the sweep have not been written to MLflow (down); they are kept in "
        f"{path}. Deliver them with:  tune-tf sync {path.parent}"
    ]

    store = Store()
    after = writer_of(store)
    after.put(result("t", 50))
    after.close()
    assert store.steps == {"t": list(range(51))}
    assert not path.exists()


def test_nobody_waits_and_memory_does_not_grow_while_the_store_is_down(writer_of):
    store = Store(down=True)
    writer = writer_of(store, capacity=1, backlog=10, delays_s=(0.01,), patience_s=60.0)
    for step in range(1000):
        writer.put(result("t", step))
    held = sum(len(entry.reports) for each in writer._backlog.values() for entry in each.updates)
    assert held <= 10 + 64  # what is read at once may go over the limit
    assert writer.unwritten() == []
    store.down = False
    writer.close()
    assert store.steps == {"t": list(range(1000))}


def test_an_unreadable_spool_stays_on_disk_and_later_entries_are_sent(
    path, writer_of, monkeypatch, caplog
):
    store = Store()
    read_back = Spool.read

    def damaged(spool, after, limit):
        if after < 5:
            raise OSError(errno.EIO, "Input/output error")
        return read_back(spool, after, limit)

    monkeypatch.setattr(Spool, "read", damaged)
    writer = writer_of(store)
    for step in range(1, 6):
        writer.put(result("t", step))
    while writer._queue.last_taken < 5:
        time.sleep(0.005)
    writer.put(result("t", 6))
    writer.close()
    assert store.steps == {"t": [6]}
    assert writer.num_left == 5
    monkeypatch.undo()
    assert [step for _, step in read(path)] == [1, 2, 3, 4, 5, 6]
    assert "cannot be read back from disk" in caplog.text
    assert "5 entries of the sweep have not been written to MLflow" in caplog.text


class FullDisk:
    """Has room for so many bytes, then writes only a part and after that nothing."""

    def __init__(self, room):
        self.room = room
        self.write = os.write

    def __call__(self, file, data):
        if len(data) <= self.room:
            self.room -= len(data)
            return self.write(file, data)
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        part, self.room = data[: self.room], 0
        return self.write(file, part)


def test_entries_wait_in_memory_while_the_disk_is_full(path, writer_of, monkeypatch, caplog):
    caplog.set_level("INFO")
    disk = FullDisk(room=1000)
    monkeypatch.setattr("tune_tf.tracking.writing.spool.os.write", disk)
    writer = writer_of(Store(down=True), delays_s=(0.001,))
    for step in range(40):
        writer.put(result("t", step))
    assert 0 < len(writer.unwritten()) < 40
    disk.room = 10**6
    writer.put(result("t", 40))
    assert writer.unwritten() == []
    writer.put(result("t", 41))
    writer.close()

    assert [step for _, step in read(path)] == list(range(42))
    of_the_disk = [r.getMessage() for r in caplog.records if "MLflow updates" in r.getMessage()]
    assert [text.partition(";")[0] for text in of_the_disk] == [
        "MLflow updates cannot be spooled to disk and are kept in memory",
        "MLflow updates are spooled to disk again",
    ]
