"""Data that are loaded once for all processes of a node."""

import copy
import functools
import os
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from tune_tf.data import LoadCache, NodeDataLoader, start_node_cache
from tune_tf.data.leased_actor import NAMESPACE
from tune_tf.data.node_cache import node_cache
from tune_tf.errors import WorkloadError
from tune_tf.workload import Data, Workload

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS = 1_000


class Counted(Workload):
    """Writes down each loading; reads ``size`` of a config.

    Args:
        folder: Where it writes.
        train: What it returns for training; by default arrays.
    """

    def __init__(self, folder, train=None):
        self.log = Path(folder, "loads.txt")
        self.train = train

    def load_data(self, config):
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if config["size"] < 0:
            raise WorkloadError(f"no rows of {config['size']} numbers")
        x = np.full((ROWS, config["size"]), 0.5)
        return Data(train=self.train or (x, np.arange(ROWS)), test=(x, np.arange(ROWS)))

    def build_model(self, config):
        raise NotImplementedError

    @property
    def num_loads(self):
        return len(self.log.read_text().splitlines())


class Process:
    """A process that loads data as a trial does."""

    def __init__(self, workload, data_id, **given):
        self.workload = workload
        self.loads = NodeDataLoader(workload, data_id, **given)
        self.cache = LoadCache(self.loads.load)

    def load(self, config):
        """Return shape, type and sum of x, whether it can be written to, and y's sum."""
        x, y = self.cache.get(config).train
        return x.shape, str(x.dtype), float(x.sum()), x.flags.writeable, int(y.sum())

    def load_any(self, config):
        return self.loads.load(config)

    def trial(self, config):
        """Return what the other methods of the workload see in a trial."""
        self.cache.get(config)
        names = vars(self.workload).keys() - {"lock"}
        seen = copy.deepcopy({name: getattr(self.workload, name) for name in names})
        self.workload.stats["size"] = self.workload.mean = -1
        return seen

    def file_of(self, config):
        """Return the file whose pages the memory of x is."""
        start = self.cache.get(config).train[0].ctypes.data
        for line in Path("/proc/self/maps").read_text().splitlines():
            pages, *_, name = line.split(maxsplit=5)
            first, last = (int(part, 16) for part in pages.split("-"))
            if first <= start < last:
                return name
        raise LookupError(start)


@pytest.fixture
def processes():
    """Return a function that starts processes; they end with the test."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)

    started = []

    def start(num, workload, data_id, **given):
        process = ray.remote(Process).options(num_cpus=0)
        started.extend(process.remote(workload, data_id, **given) for _ in range(num))
        return started[-num:]

    yield start
    for process in started:
        ray.kill(process)
    ray.cloudpickle.unregister_pickle_by_value(here)


def results(calls):
    import ray

    return ray.get(calls, timeout=240)


def test_a_process_leases_its_data_before_it_loads_them(monkeypatch):
    leases = []
    lease = types.SimpleNamespace(remote=lambda *told: leases.append(told))
    actor = types.SimpleNamespace(lease=lease)
    monkeypatch.setattr(node_cache, "leased_actor", lambda *_: (actor, "user"))
    monkeypatch.setattr(node_cache, "is_actor", lambda: True)
    start_node_cache(None)
    start_node_cache("rows")
    monkeypatch.setattr(node_cache, "is_actor", lambda: False)
    start_node_cache("other rows")

    assert leases == [("rows", "user")]


def keepers():
    """Return the names of all keepers."""
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in named if each["name"].startswith("data-")]


def keeper_of(data_id):
    """Return the keeper of this node, which knows the data."""
    import ray

    (name,) = keepers()
    keeper = ray.get_actor(name, NAMESPACE)
    assert ray.get(keeper.lease.remote(data_id, "the test"))
    return keeper


def test_processes_that_ask_at_the_same_moment_share_one_loading(tmp_path, processes):
    workload = Counted(tmp_path)
    all_of_them = processes(4, workload, "at once")
    loaded = results(
        [process.load.remote({"size": 3, "lr": i}) for i, process in enumerate(all_of_them)]
    )

    assert loaded == [((ROWS, 3), "float32", ROWS * 1.5, False, ROWS * (ROWS - 1) // 2)] * 4
    assert workload.num_loads == 1


def test_the_arrays_lie_in_the_object_store_of_the_node(tmp_path, processes):
    both = processes(2, Counted(tmp_path), "store")
    files = results([process.file_of.remote({"size": 1000}) for process in both])

    assert files[0] == files[1]
    assert "plasma" in files[0]


def test_another_value_of_what_is_read_is_loaded_too(tmp_path, processes):
    workload = Counted(tmp_path)
    first, second = processes(2, workload, "values")
    for process, size in [(first, 2), (second, 5), (first, 5), (second, 2)]:
        assert results(process.load.remote({"size": size, "lr": 1}))[0] == (ROWS, size)

    assert workload.num_loads == 2


def test_a_trial_in_a_warm_process_asks_nobody_again(tmp_path, processes):
    import ray

    workload = Counted(tmp_path)
    (process,) = processes(1, workload, "warm")
    results(process.load.remote({"size": 2, "lr": 1}))
    ray.kill(keeper_of("warm"))
    results(process.load.remote({"size": 2, "lr": 2}))

    assert workload.num_loads == 1


@pytest.mark.slow
def test_a_lost_keeper_is_replaced(tmp_path, processes):
    import ray

    workload = Counted(tmp_path)
    first, second = processes(2, workload, "lost")
    expected = results(first.load.remote({"size": 2}))
    ray.kill(keeper_of("lost"))

    assert results(second.load.remote({"size": 2})) == expected
    assert results(first.load.remote({"size": 2})) == expected
    assert workload.num_loads == 2


@pytest.mark.slow
def test_what_the_loader_raises_is_raised_where_it_was_asked_for(tmp_path, processes):
    workload = Counted(tmp_path)
    (process,) = processes(1, workload, "raises")

    with pytest.raises(WorkloadError, match="no rows of -1 numbers"):
        results(process.load.remote({"size": -1}))


def test_a_part_that_is_no_array_is_loaded_by_each_process(tmp_path, processes):
    workload = Counted(tmp_path, train=range(3))
    (process,) = processes(1, workload, "no arrays")
    data = results(process.load_any.remote({"size": 1}))

    assert data.train == range(3)
    assert workload.num_loads == 2  # by the keeper first, which sees that it cannot keep it


class Setting(Counted):
    """Sets what it finds out, and a lock where it is told to."""

    def __init__(self, folder, *, locked=False):
        super().__init__(folder)
        self.locked = locked
        self.mean = None
        self.stats = {}

    def load_data(self, config):
        self.mean = np.full(3, config["size"])
        self.stats["size"] = config["size"]
        if self.locked:
            self.lock = threading.Lock()
        return super().load_data(dict(config))


@pytest.mark.parametrize("locked", [False, True])
def test_each_trial_has_what_the_loader_of_its_data_set(tmp_path, processes, locked):
    workload = Setting(tmp_path, locked=locked)
    first, second = processes(2, workload, f"set, locked {locked}")
    for process, size in [(first, 2), (first, 3), (first, 2), (second, 2), (second, 3), (first, 3)]:
        seen = results(process.trial.remote({"size": size}))
        assert seen["mean"].tolist() == [size] * 3
        assert seen["stats"] == {"size": size}
        assert seen["locked"] is locked
    if not locked:
        assert workload.num_loads == 2


def test_a_config_that_escapes_whole_in_the_keeper_counts_as_read(tmp_path, processes):
    workload = Setting(tmp_path)
    (process,) = processes(1, workload, "escapes")
    for lr in (1, 2, 1):
        results(process.trial.remote({"size": 2, "lr": lr, "g": {"x": np.arange(lr)}}))
    assert workload.num_loads == 2


def test_two_sweeps_share_nothing(tmp_path, processes):
    workload = Counted(tmp_path)
    (first,), (second,) = processes(1, workload, "one"), processes(1, workload, "two")
    results([process.load.remote({"size": 2}) for process in (first, second)])

    assert workload.num_loads == 2


def test_data_are_loaded_without_gpus(tmp_path, processes):
    class Seen(Counted):
        def load_data(self, config):
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
            return Data((np.array([f"GPUs: {visible}"]), np.zeros(1)))

    (process,) = processes(1, Seen(tmp_path), "no GPUs")
    assert results(process.load_any.remote({})).train[0].tolist() == ["GPUs: "]


def test_the_driver_loads_its_own_writable_copy(tmp_path):
    workload = Counted(tmp_path)
    data = NodeDataLoader(workload, "driver").load({"size": 2})

    assert data.train[0].flags.writeable
    assert workload.log.read_text() == f"{os.getpid()}\n"


def wait_for_none(what):
    """Wait until a function returns nothing."""
    deadline = time.monotonic() + 240
    while what() and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    return what()


@pytest.mark.slow
def test_data_are_freed_and_the_keeper_ends_once_nobody_is_left(tmp_path, processes):
    import ray

    for name in keepers():
        ray.kill(ray.get_actor(name, NAMESPACE))
    assert wait_for_none(keepers) == []
    first, second = (processes(1, Counted(tmp_path), each, keep_s=6.0)[0] for each in "ab")
    results([process.load.remote({"size": 2}) for process in (first, second)])
    (name,) = keepers()
    keeper = ray.get_actor(name, NAMESPACE)
    ray.kill(first)
    data_ids = functools.partial(keeper.__ray_call__.remote, lambda cache: list(cache._caches))
    assert not wait_for_none(lambda: ray.get(data_ids()) != ["b"])
    ray.kill(second)
    assert wait_for_none(keepers) == []


def test_what_is_not_used_is_dropped_where_room_is_short(tmp_path, monkeypatch):
    import asyncio

    workload = Counted(tmp_path)
    monkeypatch.setattr(
        node_cache, "object_store_bytes", lambda: 2 * 33 * ROWS
    )  # 4 bytes a number, 8 a label

    async def load(*sizes):
        kept = node_cache.NodeCache(10.0)
        await kept.register("room", workload, "float32")
        for size in sizes:
            await kept.load("room", {"size": size})

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # and is set back
    asyncio.run(load(1, 1, 2, 1, 3, 1, 2))
    assert workload.num_loads == 4  # 1, 2, 3, and 2 again
