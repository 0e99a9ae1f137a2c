"""Processes that prepare records and die, or whose askers do."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from preparing_functions import dear, image_of

from tune_tf.data import preparation_counts, prepared
from tune_tf.data.prepare import prepare_actor
from tune_tf.data.prepare.preparation import Preparation
from tune_tf.data.prepare.prepare_actor import PreparationCounts, prepare_on_cluster
from tune_tf.errors import WorkerError, WorkerLostError

pytestmark = pytest.mark.usefixtures("ray_cluster")


def preparers():
    import ray

    return [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["name"].startswith("preparer-")
    ]


def kill_preparer():
    import ray

    for name in preparers():
        ray.kill(ray.get_actor(name, namespace="tune_tf"))


def test_rows_are_awaited_until_ray_knows_that_a_node_was_lost(monkeypatch):
    from ray.exceptions import ActorUnavailableError

    failures = iter([ActorUnavailableError("", None)] * 6)
    monkeypatch.setattr(prepare_actor, "_PAUSE_S", 0.0)

    def request(*_):
        for failure in failures:
            raise failure
        return "rows"

    monkeypatch.setattr(prepare_actor, "_request", request)
    preparation = Preparation([1], image_of(), stop_at_failure=True)
    assert prepare_on_cluster(preparation) == "rows"

    failures = iter([ActorUnavailableError("", None)] * 6)
    monkeypatch.setattr(prepare_actor, "_UNAVAILABLE_S", 0.0)
    with pytest.raises(WorkerLostError, match="lost 4 times"):
        prepare_on_cluster(preparation)


@pytest.mark.slow
def test_a_process_that_is_lost_changes_nothing(tmp_path):
    marker = tmp_path / "killed"

    def read(number):
        if number == 13 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(3, number)

    rows = prepared(range(40), dear(read, 0)).rows
    assert marker.exists()
    np.testing.assert_array_equal(rows[:, 0], np.arange(40))


@pytest.mark.slow
def test_a_record_that_ends_every_process_is_an_error():
    def read(number):
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(WorkerError, match="was lost 4 times"):
        prepared(range(40), dear(read, 0))


@pytest.mark.slow
def test_a_record_that_ends_the_process_that_begins_is_an_error():
    def read(number):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError, match=r"preparation of 4 record\(s\) failed: .*died|crashed"):
        prepared(range(4), read)


@pytest.mark.slow
def test_a_preparer_that_was_lost_is_made_anew():
    first = prepared(range(10), image_of(), version="lost").rows["image"]
    kill_preparer()
    np.testing.assert_array_equal(
        prepared(range(10), image_of(), version="lost").rows["image"], first
    )
    assert preparation_counts() == PreparationCounts(num_asked=1, num_run=1)


@pytest.mark.slow
def test_waiting_askers_ask_again_after_the_preparer_died(tmp_path, askers):
    import ray

    begun = tmp_path / "begun"
    go_on = tmp_path / "go_on"

    def read(number):
        begun.touch()
        while not go_on.exists():
            threading.Event().wait(0.05)
        return number

    waiting = [asker.ask.remote(range(4), read) for asker in askers]
    while not begun.exists():
        ray.wait(waiting, timeout=0.1)
    kill_preparer()
    go_on.touch()
    for rows, _ in ray.get(waiting, timeout=300):
        assert rows.tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_preparer_ends_once_nobody_is_left_who_asked(askers):
    import ray

    kill_preparer()

    @ray.remote(num_cpus=0)
    class Asker:
        def ask(self, fn):
            preparation = Preparation([*range(4)], fn, stop_at_failure=True)
            return prepare_on_cluster(preparation, keep_s=6.0)[0].kept.tolist()

    asker = Asker.remote()
    assert ray.get(asker.ask.remote(image_of())) == [0, 1, 2, 3]
    (name,) = preparers()
    handle = ray.get_actor(name, namespace="tune_tf")
    threading.Event().wait(8.0)  # it hears from its asker, and stays
    assert ray.get(handle.counts.remote()).num_run == 1
    ray.kill(asker)
    deadline = time.monotonic() + 240
    while preparers() and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    assert preparers() == []
