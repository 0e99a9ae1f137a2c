import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.tracking.writing.run_update import PARENT, Report, RunUpdate
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import BackgroundWriter

ROOT = Path(__file__).parents[3]


def result(run, step):
    return RunUpdate(run, 0, reports=[Report(step, 0, {"loss": 1.0})])


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
def path(tmp_path):
    return tmp_path / "sweep" / "mlflow-spool"


@pytest.fixture
def writer_of(path):
    def writer_of(store, **settings):
        settings = {"linger_s": 0.0, "delays_s": (0.0,), "patience_s": 0.0, **settings}
        return BackgroundWriter(lambda: store, Spool(path, segment_bytes=300), **settings)

    return writer_of


def lines(path):
    return b"".join(file.read_bytes() for file in sorted(path.glob("*.jsonl")))


def read(path, limit=100):
    spool = Spool(path)
    entries = spool.read(0, limit)
    spool.close()
    return [(number, entry.reports[0].step) for number, entry in entries]


def test_what_is_appended_is_read_by_the_next_process_in_order(path):
    first = Spool(path, {"sweep_id": "s"}, segment_bytes=200)
    for number in range(1, 21):
        first.append(number, result("t", number))
    assert len(list(path.glob("*.jsonl"))) > 3
    first.close()

    second = Spool(path)
    assert second.about == {"sweep_id": "s"}
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


def test_delivered_files_go_and_the_rest_stays(path):
    spool = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        spool.append(number, result("t", number))
    spool.discard_below(11)
    spool.close()
    numbers = [number for number, _ in read(path)]
    assert numbers == list(range(numbers[0], 21))
    assert 8 <= numbers[0] <= 11


def test_an_entry_stays_until_all_below_a_higher_number_is_delivered(path):
    spool = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        spool.append(number, result("t", number))
    for number in range(1, 21):
        spool.discard_below(number)
        assert [n for n, _ in spool.read(number - 1, 1)] == [number]
    spool.close()


def test_what_an_earlier_process_left_is_removed_once_it_is_delivered(path):
    first = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        first.append(number, result("t", number))
    first.close()
    second = Spool(path)
    second.discard_below(21)
    assert not list(path.glob("*.jsonl"))
    second.close()
    assert not path.exists()


def test_a_closed_spool_leaves_no_file_open(path):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - of the system, not of a folder
    spool = Spool(path, {}, segment_bytes=200)
    for number in range(1, 21):
        spool.append(number, result("t", number))
    assert len(spool.read(0, 15)) == 15
    spool.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_spool_closed_twice_takes_nothing_from_the_next_one(path):
    first = Spool(path, {})
    first.append(1, result("t", 1))
    first.close()
    second = Spool(path)
    first.close()
    assert is_spool_locked(path)
    assert len(second.read(0, 5)) == 1
    second.close()


def test_a_file_that_a_killed_process_left_half_written_goes(path):
    path.mkdir(parents=True)
    (path / ".about.999").write_text("{")

    Spool(path, {"sweep_id": "digits"}).close()

    assert not path.exists()


def test_a_folder_with_more_in_it_stays(path):
    spool = Spool(path, {})
    (path / "notes.txt").write_text("mine")
    spool.close()
    assert [each.name for each in path.iterdir()] == ["notes.txt"]


def test_a_file_that_cannot_be_made_is_tried_again_with_the_next_entry(path, monkeypatch):
    def refuse(*given):
        monkeypatch.setattr(os, "open", made)
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(path, {}, segment_bytes=1)
    spool.append(1, result("t", 1))
    made = os.open
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="No space"):
        spool.append(2, result("t", 2))
    spool.append(2, result("t", 2))
    spool.close()
    assert read(path) == [(1, 1), (2, 2)]


def test_a_file_that_has_its_size_is_followed_by_another(path):
    spool = Spool(path, {})
    spool.append(1, result("t", 1))
    size = len(lines(path))
    spool.close()
    spool = Spool(path, {}, segment_bytes=size)
    spool.append(2, result("t", 2))
    spool.append(3, result("t", 3))
    assert len(list(path.glob("*.jsonl"))) == 3


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


def test_a_file_that_holds_no_entry_is_removed(path):
    path.mkdir(parents=True)
    (path / "000000000001.jsonl").write_bytes(b"torn")
    spool = Spool(path, {})
    assert (spool.last, spool.num_left, lines(path)) == (0, 0, b"")
    assert not list(path.glob("*.jsonl"))


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


def test_a_spool_that_cannot_be_opened_is_free(path):
    (path / "about").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="about"):
        Spool(path, {})
    assert not is_spool_locked(path)


def test_a_killed_process_leaves_its_spool_free_with_all_that_it_put(path):
    code = f"""
import os, signal
from pathlib import Path
from tune_tf.tracking.writing.run_update import RunUpdate, Report
from tune_tf.tracking.writing.spool import Spool
from tune_tf.tracking.writing.writer import BackgroundWriter
def never():
    raise ConnectionError("down")
writer = BackgroundWriter(never, Spool(Path({str(path)!r}), {{"sweep_id": "s"}}))
for step in range(500):
    writer.put(RunUpdate("t", 0, reports=[Report(step, 0, {{"loss": 1.0}})]))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=240)
    assert done.returncode == -signal.SIGKILL
    assert [step for _, step in read(path, 1000)] == list(range(500))


def test_what_is_delivered_at_the_end_leaves_no_spool(path, writer_of, caplog):
    store = Store()
    writer = writer_of(store)
    for step in range(50):
        writer.put(result("t", step))
    writer.close()
    assert store.steps == {"t": list(range(50))}
    assert list(path.parent.iterdir()) == []
    assert not caplog.records


def test_what_a_store_does_not_take_stays_on_disk_and_the_next_writer_delivers_it(
    path, writer_of, caplog
):
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


def test_what_is_put_after_the_end_is_lost_and_not_on_disk(path, writer_of):
    writer = writer_of(Store(down=True))
    writer.put(result("t", 1))
    writer.close()
    writer.put(result("t", 2))
    assert writer.lost == 1
    assert [step for _, step in read(path)] == [1]


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


def test_what_cannot_be_read_back_stays_on_disk_and_what_comes_later_is_delivered(
    path, writer_of, monkeypatch, caplog
):
    store, fails = Store(), threading.Event()
    read_back = Spool.read

    def damaged(spool, after, limit):
        if after < 5:
            fails.set()
            raise OSError(errno.EIO, "Input/output error")
        return read_back(spool, after, limit)

    monkeypatch.setattr(Spool, "read", damaged)
    writer = writer_of(store, linger_s=60.0)
    for step in range(1, 6):
        writer.put(result("t", step))
    assert writer.flush(240)
    assert fails.is_set()
    writer.put(result("t", 6))
    assert writer.flush(240)
    assert store.steps == {"t": [6]}
    assert writer.num_left == 5
    writer.close()
    monkeypatch.undo()
    assert [step for _, step in read(path)] == [1, 2, 3, 4, 5, 6]
    assert "cannot be read back from disk" in caplog.text
    assert "5 entries of the sweep have not been written to MLflow" in caplog.text


def test_with_a_spool_nothing_has_to_be_taken_along(writer_of):
    writer = writer_of(Store(down=True))
    writer.put(result("t", 1))
    assert writer.unwritten() == []
    writer.close()


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


def test_with_a_full_disk_entries_wait_in_memory_and_go_to_disk_when_there_is_room(
    path, writer_of, monkeypatch, caplog
):
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


def test_with_a_full_disk_and_a_store_that_works_all_is_delivered_in_order(writer_of, monkeypatch):
    monkeypatch.setattr("tune_tf.tracking.writing.spool.os.write", FullDisk(room=500))
    store = Store()
    writer = writer_of(store, capacity=3, backlog=3)
    for step in range(200):
        writer.put(result("t", step))
    writer.close()
    assert store.steps == {"t": list(range(200))}


def test_with_a_full_disk_and_no_memory_left_the_caller_waits_for_the_disk(writer_of, monkeypatch):
    disk = FullDisk(room=0)
    monkeypatch.setattr("tune_tf.tracking.writing.spool.os.write", disk)
    store = Store(down=True)
    writer = writer_of(store, capacity=1, backlog=1, delays_s=(0.01,), patience_s=60.0)
    steps = iter(range(100))
    blocked = threading.Thread(target=lambda: [writer.put(result("t", step)) for step in steps])
    blocked.start()
    blocked.join(0.2)
    assert blocked.is_alive()
    disk.room = 10**6
    blocked.join(240)
    assert not blocked.is_alive()
    store.down = False
    writer.close()
    assert store.steps == {"t": list(range(100))}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_is_really_full_loses_nothing(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no small disk")
    try:
        store = Store(down=True)
        writer = BackgroundWriter(
            lambda: store, Spool(small / "spool"), linger_s=0.0, delays_s=(0.01,), patience_s=60.0
        )
        for step in range(1500):
            writer.put(result("t", step))
        assert writer.unwritten()
        store.down = False
        writer.close()
        assert store.steps == {"t": list(range(1500))}
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_run_that_fails_alone_keeps_only_what_came_after_it(path, writer_of):
    class Picky(Store):
        def write(self, entry):
            if entry.run == "bad":
                raise ConnectionError("no such place for artifacts")
            super().write(entry)

    store = Picky()
    writer = writer_of(store, delays_s=(0.01,))
    for step in range(30):
        writer.put(result("good", step))
    assert writer.flush(240)
    assert lines(path) == b""
    writer.put(result("bad", 1))
    writer.put(result(PARENT, 1))
    writer.close()
    assert store.steps == {"good": list(range(30)), PARENT: [1]}
    assert [step for _, step in read(path)] == [1, 1]
