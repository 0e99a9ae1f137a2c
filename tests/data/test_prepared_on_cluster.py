"""Records turned into rows by tasks on a cluster."""

import os
import signal
import sys
import uuid

import numpy as np
import pytest

from tune_tf.data import preparation, prepared
from tune_tf.errors import WorkerLostError, WorkloadError

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(autouse=True)
def tasks_at_once(monkeypatch):
    """Let tasks take over after the second record."""
    monkeypatch.setattr(preparation, "_TASKS_READY_S", 0.0)


def image_of(number):
    return {"image": np.full((4, 3), number, np.uint8), "label": number % 10, "pid": os.getpid()}


def local(fn):
    """Return a function that is known to this process only."""
    return lambda number: fn(number)


@pytest.fixture(autouse=True)
def by_value():
    """Let the processes of the cluster have this module's functions."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    yield
    ray.cloudpickle.unregister_pickle_by_value(here)


def test_rows_are_those_of_a_plain_loop_in_its_order():
    found = prepared([*range(80, 10, -1)], local(image_of))
    rows = [image_of(number) for number in range(80, 10, -1)]
    np.testing.assert_array_equal(found["image"], np.stack([row["image"] for row in rows]))
    np.testing.assert_array_equal(found["label"], [row["label"] for row in rows])
    assert not found["image"].flags.writeable
    assert len({*found["pid"]} - {os.getpid()}) >= 1


def test_bad_records_are_told_as_in_this_process():
    def read(number):
        if number in (13, 30):
            raise KeyError(number)
        return image_of(number)

    text = r"record 13 \(13\): KeyError: 13; record 30 .*: fix these"
    with pytest.raises(WorkloadError, match=text) as caught:
        prepared(range(40), read)
    assert "in read" in caught.value.__notes__[0]


def test_a_process_that_is_lost_changes_nothing(tmp_path):
    marker, here = tmp_path / "killed", os.getpid()

    def read(number):
        if number == 13 and not marker.exists() and os.getpid() != here:
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(3, number)

    rows = prepared(range(40), read)
    assert marker.exists()
    np.testing.assert_array_equal(rows[:, 0], np.arange(40))


@pytest.mark.slow
def test_a_record_that_ends_every_process_is_an_error():
    def read(number):
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(WorkerLostError, match=r"record 1[0-3] .* was lost 4 times"):
        prepared(range(40), read)


def test_data_are_prepared_while_all_cpus_are_reserved():
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group([{"CPU": 1}] * 4)
    ray.get(group.ready())
    try:
        inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)

        @ray.remote(num_cpus=1, scheduling_strategy=inside)
        def ask(fn):
            preparation._TASKS_READY_S = 0.0
            return prepared(range(20), fn)["label"]

        for labels in ray.get([ask.remote(image_of) for _ in range(4)], timeout=300):
            np.testing.assert_array_equal(labels, np.arange(20) % 10)
    finally:
        ray.util.remove_placement_group(group)


def test_actors_of_a_node_prepare_once_and_share_the_rows(tmp_path):
    import ray

    def row(number):
        (tmp_path / uuid.uuid4().hex).touch()
        return np.full(1000, number, np.float32)

    @ray.remote(num_cpus=0)
    class Asker:
        def ask(self, fn, version):
            found = prepared(range(20), fn, version=version)
            return found.sum(), found.flags.writeable

    askers = [Asker.remote() for _ in range(3)]
    found = ray.get([asker.ask.remote(row, "") for asker in askers], timeout=240)
    assert found == [(190_000.0, False)] * 3
    assert len([*tmp_path.iterdir()]) == 20
    ray.get([asker.ask.remote(row, "2") for asker in askers], timeout=240)
    assert len([*tmp_path.iterdir()]) > 20
    for asker in askers:
        ray.kill(asker)
