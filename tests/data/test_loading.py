"""Data that are loaded once for all trials that read the same values."""

import copy
import os
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from setting_workloads import Process, Sets

from tune_tf.data import has_loaded
from tune_tf.workload import Data

A, B = {"a": 1, "lr": 0.1}, {"a": 2, "lr": 0.1}


def setting(self, config):
    self.mean = config["a"] * 10


def setting_in_place(self, config):
    self.stats["mean"] = config["a"]
    self.stats["all"].append(config["a"])


def setting_at_times(self, config):
    if config["a"] == 1:
        self.mean = 1


def in_an_array(self, config):
    self.table[0] = config["a"]


def itself(self, config):
    self.owner = [self, config["a"]]


CASES = {
    "set": (setting, {}, lambda s: s.mean),
    "in place": (setting_in_place, {"stats": {"all": []}}, lambda s: s.stats),
    "at times": (setting_at_times, {}, lambda s: getattr(s, "mean", None)),
    "in an array": (in_an_array, {"table": np.zeros(3)}, lambda s: s.table.tolist()),
    "itself": (itself, {}, lambda s: (s.owner[0] is s, s.owner[1])),
}


@pytest.mark.parametrize(("load", "attributes", "look"), CASES.values(), ids=CASES.keys())
def test_each_trial_sees_what_its_own_data_set(load, attributes, look):
    loads = []

    def counted(self, config):
        loads.append(config["a"])
        load(self, config)

    process = Process(Sets(counted, **attributes))
    for config in (A, {**A, "lr": 0.2}, B, A, B):
        alone = Sets(load, **copy.deepcopy(attributes))
        alone.load_data(config)
        _, workload = process.start(config)
        assert look(workload) == look(alone)
    assert loads == [1, 2]


def test_has_loaded_is_whether_load_data_changed_attributes():
    process = Process(Sets(setting_at_times))
    for config in (A, A, B, B):
        _, workload = process.start(config)
        assert has_loaded(workload) == (config is A)


def test_arrays_are_floatx_read_only_and_without_test_rows():
    def load(self, config):
        rows = np.arange(8.0).reshape(4, 2)
        return Data((rows.T[::-1].T, [1, 2, 3, 4]), (rows, rows), test=(rows, rows))

    workload = Sets()
    workload.load_data = load.__get__(workload)
    loaded, _ = Process(workload).start({})
    (x, y), test = loaded.data.train, loaded.data.test
    assert (x.dtype, x.flags.writeable, y.tolist(), test) == (np.float32, False, [1, 2, 3, 4], None)
    assert x[0].tolist() == [1, 0]


def test_what_the_loader_raises_is_raised_to_each_trial():
    process = Process(Sets(lambda self, config: 1 / config["a"]))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            process.start({"a": 0})


def test_data_without_arrays_are_loaded_by_each_trial():
    part = range(3)

    class Own(Sets):
        def load_data(self, config):
            self.a = config["a"]
            return Data(part)

    process = Process(Own())
    for config in (A, A, B):
        loaded, workload = process.start(config)
        assert loaded.key is None
        assert loaded.data.train is part
        assert workload.a == config["a"]


def test_rows_of_a_mapped_file_are_those_of_any_array(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(8.0, dtype=np.float32).reshape(4, 2))

    class Mapped(Sets):
        def load_data(self, config):
            rows = np.load(tmp_path / "x.npy", mmap_mode="r")
            return Data((rows[:3], rows[:3]), (rows[3:], rows[3:]))

    process = Process(Mapped())
    first, second = (process.start(A)[0] for _ in range(2))
    assert first.key == second.key
    assert second.data.train[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert second.data.validation[0].tolist() == [[6, 7]]


def test_an_attribute_that_cannot_be_pickled_is_said_and_set(caplog):
    def load(self, config):
        self.lock, self.a = threading.Lock(), config["a"]

    process = Process(Sets(load))
    workloads = [process.start(config)[1] for config in (A, A, B)]
    assert [workload.a for workload in workloads] == [1, 1, 2]
    assert workloads[0].lock is not workloads[1].lock
    (text,) = caplog.messages
    assert "Each trial loads its data, since it or what load_data set cannot be pickled" in text


def test_a_value_that_cannot_be_compared_is_loaded_by_each_trial():
    loads = []
    process = Process(Sets(lambda self, config: loads.append(config["itself"])))
    config = {"itself": []}
    config["itself"].append(config["itself"])
    first, second = (process.start(config)[0] for _ in range(2))
    assert len(loads) == 2
    assert first.key is None
    assert second.key is None


class Counted(Sets):
    """Writes down each loading; reads ``size`` of a config."""

    def __init__(self, folder):
        self.log = Path(folder, "loads.txt")

    def load_data(self, config):
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        self.loader = os.getpid()
        x = np.full((1000, config["size"]), 0.5)
        return Data((x, np.arange(1000)))

    @property
    def num_loads(self):
        return len(self.log.read_text().splitlines())


class Trials(Process):
    """A process of trials on a cluster."""

    def pid(self):
        return os.getpid()

    def load(self, config):
        """Return the sum of x, who loaded it, the file of its memory and the store's folder."""
        loaded, workload = self.start(config)
        x = loaded.data.train[0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            pages, *_, name = line.split(maxsplit=5)
            first, last = (int(part, 16) for part in pages.split("-"))
            if first <= x.ctypes.data < last:
                return float(x.sum()), workload.loader, name, self._loader._store.folder
        raise LookupError(x)


@pytest.fixture
def started():
    """Processes that end with the test."""
    return []


@pytest.fixture
def processes(ray_cluster, started):
    """Return a function that starts processes."""
    import ray

    here = [sys.modules[name] for name in (__name__, "setting_workloads")]
    for module in here:
        ray.cloudpickle.register_pickle_by_value(module)

    def start(count, workload, sweep_key):
        kind = ray.remote(num_cpus=0)(Trials)
        started.extend(kind.remote(workload, sweep_key) for _ in range(count))
        return started[-count:]

    yield start
    ended = [psutil.Process(pid) for pid in ray.get([each.pid.remote() for each in started])]
    for process in started:
        ray.kill(process)
    psutil.wait_procs(ended, timeout=60)  # else they still use the store in the next test
    for module in here:
        ray.cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.cluster
def test_processes_of_a_node_share_one_loading_and_its_memory(tmp_path, processes):
    import ray

    workload = Counted(tmp_path)
    asked = [
        process.load.remote({"size": 3, "lr": number})
        for number, process in enumerate(processes(3, workload, "shared"))
    ]
    found = ray.get(asked, timeout=240)
    assert len(set(found)) == 1
    assert found[0][0] == 1500
    assert found[0][2].startswith(str(found[0][3]))
    assert workload.num_loads == 1
    (late,) = processes(1, workload, "shared")
    assert ray.get(late.load.remote({"size": 3})) == found[0]
    assert ray.get(late.load.remote({"size": 4}))[0] == 2000
    (other,) = processes(1, workload, "another sweep")
    ray.get(other.load.remote({"size": 3}))
    assert workload.num_loads == 3


@pytest.mark.cluster
def test_nothing_is_left_once_the_last_process_has_ended(tmp_path, processes, started):
    import ray

    (process,) = processes(1, Counted(tmp_path), "ends")
    folder = ray.get(process.load.remote({"size": 3}))[-1]
    assert folder.exists()
    started.remove(process)
    process.__ray_terminate__.remote()
    deadline = threading.Event()
    for _ in range(600):
        if not folder.exists():
            break
        deadline.wait(0.1)
    assert not folder.exists()
