"""Records turned into rows once for all processes of a job."""

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tune_tf.data import LoadCache, preparation_counts, prepared
from tune_tf.data.prepare.preparation import Preparation
from tune_tf.data.prepare.prepare_actor import PreparationCounts, prepare_on_cluster
from tune_tf.errors import WorkerError, WorkloadError

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counted():
    """Return what was asked and run since the start of a test."""
    before = preparation_counts()

    def since():
        now = preparation_counts()
        return PreparationCounts(now.num_asked - before.num_asked, now.num_run - before.num_run)

    return since


@pytest.fixture
def askers():
    """Four processes that ask for data."""
    import ray

    @ray.remote(num_cpus=0)
    class Asker:
        def ask(self, records, fn, **arguments):
            found = prepared(records, fn, **arguments)
            return found.rows, os.getpid()

        def pid(self):
            return os.getpid()

    made = [Asker.remote() for _ in range(4)]
    yield made
    for asker in made:
        ray.kill(asker)


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


def image_of():
    """Return a function that is known to this process only."""

    def image(number):
        if number == 77:
            raise KeyError("no picture")
        image = np.full((4, 3), number, np.uint8)
        return {"image": image, "label": number % 10, "pid": os.getpid()}

    return image


def dear(fn, first):
    """Return a function that takes so long with the first record that a pool does the others."""

    def patient(number):
        if number == first:
            threading.Event().wait(0.4)
        return fn(number)

    return patient


@pytest.mark.parametrize(
    ("made", "is_of_many"),
    [
        pytest.param(lambda fn: fn, False, id="here"),
        pytest.param(
            lambda fn: dear(fn, 70),
            True,
            id="a pool for what would take long",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rows_are_those_of_a_plain_loop_in_its_order(made, is_of_many):
    found = prepared([*range(70, 40, -1)], made(image_of()), version="order")
    rows = [image_of()(number) for number in range(70, 40, -1)]
    np.testing.assert_array_equal(found.rows["image"], np.stack([row["image"] for row in rows]))
    np.testing.assert_array_equal(found.rows["label"], [row["label"] for row in rows])
    assert found.rows["image"].dtype == np.uint8
    assert found.kept.tolist() == [*range(30)]
    assert (len(set(found.rows["pid"])) > 1) == is_of_many


def test_rows_are_views_of_the_one_copy_in_the_object_store():
    found = prepared([*range(70, 40, -1)], image_of(), version="order")
    assert not found.rows["image"].flags.owndata
    assert not found.rows["image"].flags.writeable


@pytest.mark.slow
def test_the_first_bad_record_is_named_with_its_cause():
    image = image_of()
    with pytest.raises(WorkloadError, match=r"record 77 \(77\): KeyError: 'no picture'; .* skip"):
        prepared(range(200), dear(lambda number: image(77 if number > 77 else number), 0))


def test_bad_records_are_left_out_on_request(caplog):
    found = prepared(range(70, 80), image_of(), on_bad_record="skip")
    assert found.kept.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert found.rows["label"].tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [bad.record for bad in found.skipped] == ["77"]
    assert len(caplog.messages) == 1


def test_all_who_ask_for_the_same_at_once_share_one_run(askers, counted):
    import ray

    found = ray.get([asker.ask.remote(range(50), image_of(), version="shared") for asker in askers])
    assert len({pid for _, pid in found}) == len(askers)
    for rows, _ in found:
        np.testing.assert_array_equal(rows["label"], np.arange(50) % 10)
    assert counted() == PreparationCounts(num_asked=4, num_run=1)


def test_what_differs_is_another_content():
    records = ["a", "b"]

    def key(records=records, fn=None, stop=False, version=""):
        return Preparation(records, fn or image_of(), stop, version).key()

    keys = [
        key(),
        key(records=["ab"]),
        key(records=["b", "a"]),
        key(fn=lambda record: record),
        key(stop=True),
        key(version="2"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(records=["a", b"b".decode()]) == keys[0]
    assert key(records=[np.arange(2)]) == key(records=[np.arange(2)])
    assert key(records=[threading.Lock()]) != key(records=[threading.Lock()])


def by_config(config):
    return lambda record: np.full(2, record + config["size"])


def by_partial(config):
    def fn(record, given):
        return np.full(2, record + given["size"])

    return functools.partial(fn, given=config)


def by_default(config):
    return lambda record, given=config: np.full(2, record + given["size"])


def by_nested_function(config):
    def size():
        return config["size"]

    return lambda record: np.full(2, record + size())


def by_group(config):
    group = config["group"]
    return lambda record: np.full(2, record + group["size"])


class ByMethod:
    def __init__(self, config):
        self.config = config

    def row(self, record):
        return np.full(2, record + self.config["size"])


WAYS = {
    "closure": by_config,
    "partial": by_partial,
    "default": by_default,
    "nested function": by_nested_function,
    "group": by_group,
    "method": lambda config: ByMethod(config).row,
}


@pytest.fixture
def by_value(ray_cluster):
    """Let the processes of the cluster have this module's functions."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    yield
    ray.cloudpickle.unregister_pickle_by_value(here)


@pytest.mark.parametrize("made", WAYS.values(), ids=WAYS.keys())
def test_a_function_that_takes_the_config_along_reads_all_of_it(made):
    cache = LoadCache(lambda config: Preparation([1], made(config), True).key())
    configs = [{"size": size, "group": {"size": size}} for size in (1, 2, 1)]
    first, second, third = map(cache.get, configs)
    assert first == third != second
    assert cache.get({"size": 1, "group": {"size": 1}}) is third


@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize("made", [by_config, WAYS["method"]], ids=["closure", "method"])
def test_a_function_that_takes_the_config_along_makes_rows_of_each_config(made):
    cache = LoadCache(lambda config: prepared([1, 2], made(config)).rows.tolist())
    for size in (10, 20, 10):
        rows = cache.get({"size": size, "group": {"size": size}})
        assert rows == [[1 + size] * 2, [2 + size] * 2]


OFFSET = 1


def with_offset(record):
    return np.full(2, record + OFFSET)


@pytest.mark.slow
@pytest.mark.usefixtures("by_value")
def test_a_global_value_makes_another_content(monkeypatch, counted):
    for offset, num_run in [(1, 1), (2, 2), (1, 2)]:
        monkeypatch.setitem(globals(), "OFFSET", offset)
        assert prepared([1], with_offset).rows.tolist() == [[1 + offset] * 2]
        assert counted().num_run == num_run


def test_a_function_defined_anew_makes_another_content(counted):
    for number in (1, 2, 1):
        scope = {"np": np, "__name__": "__main__"}
        exec(f"def fn(record): return np.full(2, record + {number})", scope)
        assert prepared([1], scope["fn"]).rows.tolist() == [[1 + number] * 2]
    assert counted().num_run == 2


@pytest.mark.slow
@pytest.mark.usefixtures("by_value")
def test_what_cannot_be_compared_is_prepared_anew(counted):
    class Opaque:
        def __reduce__(self):
            return opaque, (next(NUMBERS),)

    for _ in range(2):
        held = Opaque()
        assert prepared([1], lambda record, held=held: np.float32(record)).rows.tolist() == [1]
    assert counted().num_run == 2


NUMBERS = itertools.count()


def opaque(number):
    return number


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
def test_data_are_prepared_while_all_cpus_are_reserved(counted):
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group([{"CPU": 1}] * 4)
    ray.get(group.ready())
    try:
        assert ray.available_resources().get("CPU", 0) == 0
        inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)

        @ray.remote(num_cpus=1, scheduling_strategy=inside)
        def ask(fn):
            return prepared(range(20), fn, version="reserved").rows["label"]

        images = dear(image_of(), 0)
        waiting = [ask.remote(images) for _ in range(4)]
        for labels in ray.get(waiting, timeout=300):
            np.testing.assert_array_equal(labels, np.arange(20) % 10)
        assert counted().num_run == 1
    finally:
        ray.util.remove_placement_group(group)


@pytest.mark.slow
def test_a_preparer_that_was_lost_is_made_anew():
    first = prepared(range(10), image_of(), version="lost").rows["image"]
    kill_preparer()
    np.testing.assert_array_equal(
        prepared(range(10), image_of(), version="lost").rows["image"], first
    )
    assert preparation_counts() == PreparationCounts(num_asked=1, num_run=1)


@pytest.mark.slow
def test_who_waits_when_the_preparer_is_lost_asks_again(tmp_path, askers):
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


def test_the_users_own_settings_of_ray_data_stay():
    import ray.data

    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.execution_options.preserve_order
    prepared(range(4), image_of(), version="settings")
    assert (context.enable_progress_bars, context.execution_options.preserve_order) == before


def test_what_cannot_be_sent_to_other_processes_is_told():
    lock = threading.Lock()
    with pytest.raises(WorkloadError, match=r"the function cannot be sent .*pickle.*lock"):
        prepared([1], lambda number: (number, lock)[0])


@pytest.mark.slow
def test_processes_on_two_nodes_share_one_run():
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("two_nodes_drill.py"))],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["num_nodes_of_askers"] == 2
    assert told["num_nodes_of_workers"] == 2
    assert told["free_cpus"] == 0
    assert told["counts"] == [8, 1]
    assert told["all_equal"]
