"""What methods of a workload set on it belongs to their trial."""

import copy
import functools
import gc
import logging
import threading
from typing import ClassVar

import numpy as np
import pytest

from tune_tf.data import LoadCache, NodeDataLoader
from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.errors import WorkloadError
from tune_tf.workload import Data, Workload, with_mixin

ROWS = np.arange(4.0)


class Sets(Workload):
    """A workload whose ``load_data`` does what it is told to."""

    of_class: ClassVar = {"kept": 1}

    def __init__(self, load=lambda self, config: None, **attributes):
        self.load = load
        self.__dict__.update(attributes)

    def load_data(self, config):
        self.load(self, config)
        return Data((ROWS, ROWS))

    def build_model(self, config):
        raise NotImplementedError


class Process:
    """Starts one trial after another as a Trainable does.

    Args:
        workload: Whose data.
        keep: Data sets that it keeps.
    """

    def __init__(self, workload, keep=2):
        self.workload = workload
        self.num_loads = 0
        loads = NodeDataLoader(workload, None)

        def load(config):
            self.num_loads += 1
            return loads.load(config)

        self.cache = LoadCache(load, keep)

    def start(self, config):
        """Return what the other methods of the workload see in this trial."""
        self.cache.get(config)
        return {name: value for name, value in vars(self.workload).items() if name != "load"}


def seen(workload, *configs, keep=2):
    process = Process(workload, keep)
    return [process.start(config) for config in configs]


def setting(self, config):
    self.mean = config["a"] * 10


def setting_in_place(self, config):
    self.stats["mean"] = config["a"]
    self.stats["all"].append(config["a"])


def setting_at_times(self, config):
    if config["a"] == 1:
        self.mean = 1


def deleting(self, config):
    if config["a"] == 1:
        del self.k


def adding(self, config):
    self.total += config["a"]


def in_an_array(self, config):
    self.table[0] = config["a"]


def of_itself(self, config):
    self.fn = self.method_of(config["a"])


class Nested:
    def __init__(self):
        self.inner = {"values": []}


def in_an_object(self, config):
    self.nested.inner["values"].append(config["a"])


A, B = {"a": 1, "lr": 0.1}, {"a": 2, "lr": 0.1}
CASES = {
    "set": (setting, {}, lambda s: s.mean),
    "in place": (setting_in_place, {"stats": {"all": []}}, lambda s: s.stats),
    "at times": (setting_at_times, {}, lambda s: getattr(s, "mean", None)),
    "at times, over one": (setting_at_times, {"mean": 7}, lambda s: s.mean),
    "deleted": (deleting, {"k": 3}, lambda s: getattr(s, "k", None)),
    "added to": (adding, {"total": 100}, lambda s: s.total),
    "in an array": (in_an_array, {"table": np.zeros(3)}, lambda s: s.table.tolist()),
    "in an object": (in_an_object, {"nested": Nested()}, lambda s: s.nested.inner),
}


def fresh(load, attributes, look, config):
    """Return what is seen in a process of its own."""
    workload = Sets(load, **copy.deepcopy(attributes))
    workload.load_data(config)
    return look(workload)


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize(("load", "attributes", "look"), CASES.values(), ids=CASES.keys())
def test_each_trial_sees_what_its_own_data_set(load, attributes, look, keep):
    process = Process(Sets(load, **copy.deepcopy(attributes)), keep)
    for config in (A, {**A, "lr": 0.2}, B, A, B, {**B, "lr": 0.3}, A):
        process.start(config)
        assert look(process.workload) == fresh(load, attributes, look, config)
    assert process.num_loads == (5 if keep == 1 else 2)


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize(("load", "attributes", "look"), CASES.values(), ids=CASES.keys())
def test_what_other_methods_do_to_it_lasts_for_a_trial(load, attributes, look, keep):
    process = Process(Sets(load, **copy.deepcopy(attributes)), keep)
    for config in (A, A, B, A):
        process.start(config)
        assert look(process.workload) == fresh(load, attributes, look, config)
        for name, value in vars(process.workload).items():  # as a build_model that changes all
            if isinstance(value, dict):
                value.clear()
            elif name in ("mean", "total"):
                setattr(process.workload, name, -1)


def test_load_data_sees_nothing_that_other_methods_set():
    found = []

    def load(self, config):
        found.append((config["a"], getattr(self, "x", None), dict(self.table), config.get("b")))

    workload = Sets(load, table={})
    process = Process(workload)
    for config in (A, B, {**A, "b": 1}):
        process.start(config)
        workload.x = 1
        workload.table["y"] = 2
    assert found == [(1, None, {}, None), (2, None, {}, None), (1, None, {}, 1)]
    assert workload.x == 1  # it is left to the methods that set it


def test_attributes_that_load_data_leaves_alone_stay_the_very_objects():
    given = {"array": np.zeros(3), "table": {"a": [1]}, "nested": Nested()}
    (attributes,) = seen(Sets(setting, **given), A)

    assert all(attributes[name] is value for name, value in given.items())


def test_read_only_arrays_are_not_copied():
    big = np.zeros(1000)
    big.flags.writeable = False

    def load(self, config):
        self.shares = np.shares_memory(self.big[0]["x"], big)

    (attributes,) = seen(Sets(load, big=[{"x": big}]), A)
    assert attributes["shares"]


def test_methods_and_the_workload_itself_are_bound_to_the_workload():
    def load(self, config):
        self.me = self
        self.bound = self.build_model
        self.k = config["a"]

    workload = Sets(load)
    process = Process(workload)
    for config in (A, B, A):
        attributes = process.start(config)
        assert attributes["me"] is workload
        assert attributes["bound"].__self__ is workload


def test_what_two_attributes_share_is_shared_again():
    def load(self, config):
        self.all = [[config["a"]]]
        self.first = self.all[0]

    process = Process(Sets(load))
    for config in (A, B, A):
        attributes = process.start(config)
        assert attributes["first"] is attributes["all"][0]


def test_values_that_cannot_be_pickled_are_made_anew_for_each_trial(caplog):
    def load(self, config):
        self.lock = threading.Lock()
        self.k = config["a"]

    process = Process(Sets(load))
    with caplog.at_level(logging.WARNING):
        locks = [process.start(config)["lock"] for config in (A, A, B, A)]
    assert len({id(lock) for lock in locks}) == process.num_loads == 4
    assert [process.start(config)["k"] for config in (A, B, A)] == [1, 2, 1]
    (told,) = caplog.messages
    assert told.startswith("Sets.load_data runs again for each trial, because self.lock cannot be")


class Broken:
    """Can be pickled, and not be had back."""

    def __reduce__(self):
        return broken, ()


def broken():
    raise ValueError("broken")


def test_what_cannot_be_had_back_from_a_pickle_counts_as_such():
    def load(self, config):
        self.broken = Broken()
        self.k = config["a"]

    process = Process(Sets(load))
    for config in (A, A, B, A):
        assert process.start(config)["k"] == config["a"]
    assert process.num_loads == 4


def test_a_bound_method_of_a_list_changes_that_of_its_copy():
    items = []
    workload = Sets(lambda self, config: self.add(config["a"]), items=items, add=items.append)
    process = Process(workload)
    for config in (A, B, A):
        assert process.start(config)["items"] == [config["a"]]
    assert items == []


def test_a_workload_that_cannot_be_pickled_loads_for_each_trial(caplog):
    lock = threading.Lock()
    process = Process(Sets(setting, lock=lock))
    with caplog.at_level(logging.WARNING):
        attributes = [process.start(config) for config in (A, A, B)]
    assert [each["mean"] for each in attributes] == [10, 10, 20]
    assert all(each["lock"] is lock for each in attributes)
    assert process.num_loads == 3
    assert len(caplog.messages) == 1


def in_place_of_class(self, config):
    self.of_class["x"] = config["a"]


def on_the_class(self, config):
    type(self).added = config["a"]


@pytest.mark.parametrize(
    ("load", "name"), [(in_place_of_class, "of_class"), (on_the_class, "added")]
)
def test_what_belongs_to_the_class_is_not_to_be_changed(load, name, monkeypatch):
    monkeypatch.setattr(Sets, "of_class", {"kept": 1})
    monkeypatch.setattr(Sets, "added", 0, raising=False)
    match = rf"load_data changed Sets\.{name}, which belongs to the class .* \(self\.name"
    with pytest.raises(WorkloadError, match=match):
        seen(Sets(load), A)


def test_a_cached_property_of_the_data_is_there_for_its_trial():
    class Cached(Sets):
        @functools.cached_property
        def facts(self):
            return {"of": self.a}

        def load_data(self, config):
            self.a = config["a"]
            assert self.facts["of"] == config["a"]
            return super().load_data(config)

    process = Process(Cached())
    for config in (A, B, A, B):
        process.start(config)
        assert process.workload.facts == {"of": config["a"]}


def test_a_state_of_its_own_says_what_is_copied():
    class Own(Sets):
        def __getstate__(self):
            return {"k": self.k, "load": self.load}

        def __setstate__(self, state):
            self.__dict__.update(state, lock=threading.Lock())

        def load_data(self, config):
            with self.lock:
                self.k += config["a"]
            return super().load_data(config)

    workload = Own(k=1, lock=threading.Lock())
    assert [each["k"] for each in seen(workload, A, B, A)] == [2, 3, 2]


def test_a_workload_with_slots_is_copied_as_well():
    class Slots(Sets):
        __slots__ = ("k",)

        def load_data(self, config):
            self.k = config["a"]
            return super().load_data(config)

    workload = Slots()
    process = Process(workload)
    for config in (A, B, A):
        process.start(config)
        assert workload.k == config["a"]


def test_a_workload_that_was_mixed_in_is_copied_as_well():
    class Mixin:
        def load_data(self, config):
            self.mixed = config["a"]
            return super().load_data(config)

    workload = with_mixin(Mixin, Sets(setting))
    attributes = seen(workload, A, B, A)
    assert [(each["mixed"], each["mean"]) for each in attributes] == [(1, 10), (2, 20), (1, 10)]


def test_a_workload_that_serves_again_begins_as_it_was():
    workload = Sets(setting)
    assert seen(workload, A)[0]["mean"] == 10
    copies = WorkloadCopies(workload)
    assert not hasattr(workload, "mean")
    assert WorkloadCopies.of(workload) is copies
    workload.mean = 3
    assert seen(Sets(lambda self, config: None, mean=3), A)[0]["mean"] == 3


def test_nothing_is_left_of_a_workload_that_is_gone():
    gc.collect()
    before = len(WorkloadCopies._of_workload)
    seen(Sets(setting), A)
    gc.collect()
    assert len(WorkloadCopies._of_workload) == before


def test_methods_run_later_see_what_load_data_set():
    workload = Sets(setting)
    process = Process(workload)
    for config in (A, B):
        process.start(config)
        workload.mean = -1
        workload.other = 5
        copies = WorkloadCopies.of(workload)
        found, changes = copies.run("per_example", lambda copy: (copy.mean, hasattr(copy, "other")))
        assert found == (config["a"] * 10, False)
        assert not changes.values


def test_versions_tell_what_load_data_set():
    process = Process(Sets(setting))
    versions = []
    for config in (A, {**A, "lr": 3}, B, A):
        process.start(config)
        versions.append(WorkloadCopies.of(process.workload).loaded_version)
    assert versions[0] == versions[1] == versions[3] != versions[2]
    process = Process(Sets())
    process.start(A)
    assert WorkloadCopies.of(process.workload).loaded_version == b""


def test_data_that_are_read_later_are_read_of_the_trial_that_uses_them():
    """A generator that closes over config, which a later trial takes up."""

    class Lazy(Sets):
        def load_data(self, config):
            size = config["size"]
            return Data(lambda: [config["late"]] * size)

    process = Process(Lazy())
    rows = {}
    for late in (1, 2, 1, 3):
        config = {"size": 2, "late": late, "lr": late}
        rows[late] = process.cache.get(config).train
        assert rows[late]() == [late, late]
    assert rows[1]() == [1, 1]
    process.cache.get({"size": 2, "late": 3, "lr": 9})
    assert process.num_loads == 3


def test_data_that_no_trial_has_read_yet_are_read_of_the_one_that_does():
    class Lazy(Sets):
        def load_data(self, config):
            return Data(lambda: config["late"])

    process = Process(Lazy())
    first = process.cache.get({"late": 1}).train
    second = process.cache.get({"late": 2}).train
    assert second is first
    assert second() == 2
    assert process.cache.get({"late": 1}).train() == 1
