"""How attributes that a workload's ``load_data`` sets are copied for each trial."""

import functools
import gc
import logging
import threading

import numpy as np
import pytest
from setting_workloads import A, B, Nested, Process, Sets, setting

from tune_tf.data.node_cache.workload_copies import WorkloadCopies
from tune_tf.errors import WorkloadError
from tune_tf.workload import with_mixin


def seen(workload, *configs, keep=2):
    process = Process(workload, keep)
    return [process.start(config) for config in configs]


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


def test_values_that_fail_to_unpickle_are_loaded_for_each_trial():
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


def test_a_workloads_own_getstate_decides_what_is_copied():
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
