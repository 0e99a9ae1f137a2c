"""Arrays that are computed once for all processes of a node."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tune_tf.data.node_cache.computed_arrays import ComputedArrays

pytestmark = pytest.mark.cluster


def note(log):
    """Write down that this process computes."""
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()}\n")


def noted(log):
    return Path(log).read_text().split()


class Process:
    """A process that needs arrays, as a trial does."""

    def __init__(self, keep_s=120.0):
        self.arrays = ComputedArrays(keep_s)

    def get(self, key, log, wait_s=0.0):
        """Return the sum of the arrays, and whether they can be written to."""

        def compute():
            note(log)
            time.sleep(wait_s)
            return [np.ones((1_000, 50), np.float32), np.arange(9)]

        first, second = self.arrays.get(key, compute)
        return float(first.sum() + second.sum()), first.flags.writeable

    def max_bytes(self):
        return self.arrays.max_bytes


@pytest.fixture
def processes(ray_cluster):
    """Return a function that starts processes; they end with the test."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    started = []

    def start(count, **given):
        kind = ray.remote(num_cpus=0)(Process)
        started.extend(kind.remote(**given) for _ in range(count))
        return started[-count:]

    yield start
    for process in started:
        ray.kill(process)
    ray.cloudpickle.unregister_pickle_by_value(here)


def test_processes_that_ask_at_the_same_time_compute_once(processes, tmp_path):
    import ray

    log = str(tmp_path / "log")
    asked = [each.get.remote("at once", log, 1.0) for each in processes(3)]
    assert ray.get(asked) == [(50_036.0, False)] * 3
    (later,) = processes(1)
    assert ray.get(later.get.remote("at once", log)) == (50_036.0, False)
    assert ray.get(later.get.remote("another", log)) == (50_036.0, False)
    assert len(noted(log)) == 2


def test_the_next_process_computes_if_one_dies_meanwhile(processes, tmp_path):
    import ray

    log = tmp_path / "log"
    first, second = processes(2)
    lost = first.get.remote("killed", str(log), 60.0)
    ends_s = time.monotonic() + 60
    while not log.exists() or not noted(log):
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    waiting = second.get.remote("killed", str(log))
    os.kill(int(noted(log)[0]), signal.SIGKILL)
    assert ray.get(waiting, timeout=30) == (50_036.0, False)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(lost)
    assert len(noted(log)) == 2


def test_a_failed_computation_is_repeated_by_the_next(processes, tmp_path):
    import ray

    class Failing(Process):
        def fail(self, key):
            self.arrays.get(key, lambda: 1 / 0)

    failing = ray.remote(num_cpus=0)(Failing).remote()
    with pytest.raises(ZeroDivisionError):
        ray.get(failing.fail.remote("failed"))
    (other,) = processes(1)
    assert ray.get(other.get.remote("failed", str(tmp_path / "log")), timeout=30)[0] == 50_036.0
    ray.kill(failing)


def test_half_of_the_object_store_is_the_limit(processes):
    import ray

    (process,) = processes(1)
    (node,) = ray.nodes()
    store = node["Resources"]["object_store_memory"]
    assert ray.get(process.max_bytes.remote()) == pytest.approx(store / 2)


def test_a_process_outside_of_ray_keeps_the_last(tmp_path):
    process, log = Process(), str(tmp_path / "log")
    for key in ("one", "one", "two", "one"):
        assert process.get(key, log)[0] == 50_036.0
    assert len(noted(log)) == 3
