"""Attributes that methods of a workload set on it belong to their trial."""

import copy

import numpy as np
import pytest
from setting_workloads import A, B, Nested, Process, Sets, setting


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


def in_an_object(self, config):
    self.nested.inner["values"].append(config["a"])


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
