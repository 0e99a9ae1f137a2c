"""Values that the processes of a node share."""

import logging
import multiprocessing
import os
import shutil
import signal
import time

import numpy as np
import pytest

from tune_tf.data import node_store as the_store
from tune_tf.data.node_store import NodeStore, lock_shared, node_store, remove_if_unused
from tune_tf.training.input.array_tensor import TENSOR_ALIGNMENT

SPAWN = multiprocessing.get_context("spawn")


def get(folder, key, wait_s, answers):
    """Get a value as a process of its own, which notes that it computes."""

    def compute():
        (folder / f"computed-{os.getpid()}").touch()
        time.sleep(wait_s)
        return {"x": np.arange(50_000.0), "y": "text"}

    value = NodeStore(folder).get(key, compute)
    answers.put((float(value["x"].sum()), value["y"], value["x"].flags.writeable))


def num_computed(folder):
    return len([*folder.glob("computed-*")])


def started(*arguments):
    process = SPAWN.Process(target=get, args=arguments)
    process.start()
    return process


EXPECTED = (np.arange(50_000.0).sum(), "text", False)


def test_processes_that_ask_at_the_same_time_compute_once(tmp_path):
    answers = SPAWN.Queue()
    processes = [started(tmp_path, "key", 1.0, answers) for _ in range(3)]
    assert [answers.get(timeout=60) for _ in processes] == [EXPECTED] * 3
    assert num_computed(tmp_path) == 1


@pytest.mark.slow
def test_the_next_process_computes_if_one_is_killed_meanwhile(tmp_path):
    answers = SPAWN.Queue()
    killed = started(tmp_path, "key", 600.0, answers)
    ends_s = time.monotonic() + 60
    while not num_computed(tmp_path) and time.monotonic() < ends_s:
        time.sleep(0.05)
    started(tmp_path, "key", 0.0, answers)
    os.kill(killed.pid, signal.SIGKILL)
    assert answers.get(timeout=60) == EXPECTED
    assert num_computed(tmp_path) == 2


def test_an_error_is_raised_to_each_that_asks_and_leaves_nothing(tmp_path):
    store = NodeStore(tmp_path)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            store.get("key", lambda: 1 / 0)
    assert store.get("key", lambda: 7) == 7
    assert store.get("key", lambda: 8) == 7


def test_a_process_killed_while_writing_leaves_no_value(tmp_path):
    (tmp_path / "key.partial").write_bytes(b"half")
    assert NodeStore(tmp_path).get("key", lambda: [np.ones(3)])[0].tolist() == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "key.lock"]


def test_arrays_are_pages_that_tensorflow_reads_in_place(tmp_path):
    values = {"odd": np.arange(3, dtype=np.int8), "x": np.ones((5, 4)), "none": np.zeros((0, 3))}
    found = NodeStore(tmp_path).get("key", lambda: values)
    np.testing.assert_equal(found, values)
    for name in ("odd", "x"):
        assert found[name].ctypes.data % TENSOR_ALIGNMENT == 0
        assert not found[name].flags.owndata


def test_arrays_inside_another_value_are_not_written_again(tmp_path):
    store = NodeStore(tmp_path)
    rows = store.get("rows", lambda: np.arange(80_000.0).reshape(1000, 80))
    split = store.get("split", lambda: (rows[:800], rows[800:], rows[1:, :1].copy()))
    assert (tmp_path / "split").stat().st_size < rows.nbytes / 10
    assert np.shares_memory(split[0], rows)
    other = NodeStore(tmp_path).get("split", lambda: 1 / 0)
    np.testing.assert_array_equal(np.concatenate(other[:2]), rows)
    np.testing.assert_array_equal(other[2], rows[1:, :1])


def test_a_value_without_room_on_the_disk_is_returned_and_said_once(tmp_path, monkeypatch, caplog):
    full = shutil._ntuple_diskusage(1000, 990, 10)
    monkeypatch.setattr(the_store.shutil, "disk_usage", lambda folder: full)
    store = NodeStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            value = store.get("key", lambda number=number: np.full(100, number))
            assert value.tolist() == [number] * 100
    assert "key" not in store
    (text,) = caplog.messages
    assert "the disk has no room for 800 bytes more" in text


def test_the_last_process_removes_the_folder(tmp_path):
    folder = tmp_path / "session" / "tune_tf-node-job"
    first, second = lock_shared(folder), lock_shared(folder)
    remove_if_unused(folder)
    remove_if_unused(folder, first)
    assert folder.exists()
    remove_if_unused(folder, second)
    assert not folder.exists()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path, monkeypatch):
    orphans = [tmp_path / f"session_{i}" / f"tune_tf-node-{i}" for i in (1, 2)]
    other = tmp_path / "session_1" / "tune_tf-of-something-else"
    for folder in (*orphans, other):
        folder.mkdir(parents=True)
        (folder / "key").write_text("value")
    used = tmp_path / "session_1" / "tune_tf-node-used"
    lock = lock_shared(used)
    monkeypatch.setattr(the_store.atexit, "register", lambda *given: None)
    store = the_store._opened(tmp_path / "session_2" / "tune_tf-node-mine")
    assert [folder.exists() for folder in orphans] == [False, False]
    assert used.exists()
    assert other.exists()
    assert store.folder.exists()
    os.close(lock)


def test_a_process_that_is_no_actor_has_a_store_of_its_own():
    assert node_store().folder.name == f"tune_tf-node-{os.getpid()}"
    assert node_store() is node_store()
