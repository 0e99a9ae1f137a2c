"""A config that is a dict, and notes what is read of it however it is read."""

import collections
import copy
import functools
import json
import operator
import pickle
from collections.abc import MutableMapping

import numpy as np
import pandas as pd
import pytest
from ray import cloudpickle as ray_cloudpickle

from tune_tf.data.config_reads import GROUP, MISSING, ConfigReads, RecordingConfig, matches

CONFIG = {"a": 1, "b": 2.5, "g": {"c": "x", "d": [1, {"e": 2}]}}


def reads_of(action, config=CONFIG):
    """Return what an action read, and what it returned."""
    reads = ConfigReads(config)
    return reads, action(reads.recording)


def changed(config, *path):
    """Return a config with another value."""
    other = copy.deepcopy(config)
    functools.reduce(operator.getitem, path[:-1], other)[path[-1]] = "another"
    return other


LEAVES = [("a",), ("b",), ("g", "c"), ("g", "d")]


def leaves_read(action):
    """Return the leaves that another config must share after an action."""
    reads, _ = reads_of(action)
    return [leaf for leaf in LEAVES if not matches(reads.digests, changed(CONFIG, *leaf))]


def spread(**values):
    return values


WHOLE = {
    "copy": lambda c: c.copy(),
    "items": lambda c: dict(c.items()),
    "keys": lambda c: {key: c[key] for key in c.keys()},  # noqa: SIM118
    "|": lambda c: c | {},
    "==": lambda c: c == CONFIG and CONFIG,
    "repr": lambda c: eval(repr(c)),
    "iteration": lambda c: {key: c[key] for key in c},
    "dict": dict,
    "{**}": lambda c: {**c},
    "f(**)": lambda c: spread(**c),
    "PyDict_Copy": lambda c: dict.copy(c),
    "ChainMap": lambda c: dict(collections.ChainMap({}, c)),
    "json": lambda c: json.loads(json.dumps(c)),
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda c: pickle.loads(pickle.dumps(c)),
    "pandas.DataFrame": lambda c: pd.DataFrame([c]).iloc[0].to_dict(),
    "ray's serializer": lambda c: pickle.loads(ray_cloudpickle.dumps(c)),
}


@pytest.mark.parametrize("action", WHOLE.values(), ids=WHOLE.keys())
def test_iterating_a_recording_config_records_a_read_of_every_value(action):
    reads, got = reads_of(action)

    assert dict(got) == CONFIG
    assert reads.digests[()] not in (GROUP, MISSING, None)
    assert leaves_read(action) == LEAVES
    assert matches(reads.digests, copy.deepcopy(CONFIG))


@pytest.mark.parametrize("name", ["copy", "copy.deepcopy", "pickle"])
def test_copies_of_a_recording_config_are_plain_dicts(name):
    assert type(reads_of(WHOLE[name])[1]) is dict


def expression(text, *scopes):
    return eval(text, *scopes)


SINGLE = {
    "[]": lambda c: c["a"],
    "get": lambda c: c.get("a"),
    "in": lambda c: "a" in c,
    "pop": lambda c: c.pop("a"),
    "setdefault": lambda c: c.setdefault("a", 3),
    "del": lambda c: operator.delitem(c, "a"),
    "eval by globals": lambda c: expression("a + 1", c),
    "ChainMap": lambda c: collections.ChainMap(c)["a"],
}


@pytest.mark.parametrize("action", SINGLE.values(), ids=SINGLE.keys())
def test_a_single_value_is_read_alone(action):
    assert leaves_read(action) == [("a",)]


def test_groups_are_read_by_their_values():
    assert leaves_read(lambda c: c["g"]["c"]) == [("g", "c")]
    assert leaves_read(lambda c: {**c["g"]}) == [("g", "c"), ("g", "d")]
    assert leaves_read(lambda c: c["g"]["d"][0]) == [("g", "d")]
    assert leaves_read(lambda c: c["g"]) == []
    assert not matches(reads_of(lambda c: c["g"])[0].digests, {**CONFIG, "g": 3})


def test_it_is_a_dict_and_so_are_its_groups():
    recording = ConfigReads(CONFIG).recording

    for each in (recording, recording["g"]):
        assert isinstance(each, dict)
        assert isinstance(each, MutableMapping)
    assert recording["g"] is recording["g"]


def test_recording_config_overrides_every_method_of_dict():
    plain = {"__class_getitem__", "fromkeys", "__setitem__", "__ior__", "update"}  # read nothing
    names = set(dir(dict)) - set(dir(object)) - plain

    assert not [n for n in names if getattr(RecordingConfig, n) is getattr(dict, n)]


PAST = {
    "dict.get": lambda c: float(dict.get(c, "a")),
    "truth": lambda c: dict.get(c, "a") or 3,
    "iteration": lambda c: [*dict.get(c, "g")],
    "numpy": lambda c: np.zeros(2) * dict.get(c, "a"),
    "hash": lambda c: {*dict.values(c)},
    "dict.__eq__": lambda c: dict.__eq__(c, CONFIG),
    "pickle of a value": lambda c: pickle.dumps(dict.get(c, "a")),
}


@pytest.mark.parametrize("action", PAST.values(), ids=PAST.keys())
def test_a_value_taken_past_the_methods_is_refused_where_it_is_used(action):
    with pytest.raises((ValueError, TypeError), match=r"without the config's methods|_Unread"):
        reads_of(action)


def test_an_empty_config_is_noted_as_such():
    for look in (dict, len, bool):
        reads, _ = reads_of(look, {"g": {}})
        assert not matches(reads.digests, {"g": {}, "a": 1})
    for look in (lambda c: c["g"] or 3, lambda c: dict(c["g"])):
        assert not matches(reads_of(look, {"g": {}})[0].digests, {"g": {"a": 1}})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: c.pop("a"), id="pop"),
        pytest.param(lambda c: operator.setitem(c, "a", 5), id="set"),
        pytest.param(lambda c: c.setdefault("a", 9), id="setdefault"),
        pytest.param(lambda c: c.update({"a": 7, "z": 8}, y=9), id="update"),
        pytest.param(lambda c: c["g"].update(c=9), id="in a group"),
        pytest.param(lambda c: c["g"]["d"].append(4), id="in a list"),
        pytest.param(lambda c: operator.setitem(c, "h", c.pop("g")), id="a group moved"),
    ],
)
def test_changes_are_those_of_a_dict_and_stay_in_this_copy(change):
    given = copy.deepcopy(CONFIG)
    reads = ConfigReads(given)
    expected = copy.deepcopy(CONFIG)

    assert change(reads.recording) == change(expected)
    assert list(reads.recording.items()) == list(expected.items())
    assert json.dumps(reads.recording) == json.dumps(expected)
    assert given == CONFIG
    assert matches(reads.digests, CONFIG)


def test_what_a_loader_wrote_is_no_value_of_the_config():
    def write_and_read(config):
        config["a"] = 3
        config["new"] = 4
        return config["a"] + config["new"]

    assert leaves_read(write_and_read) == []
    assert matches(reads_of(write_and_read)[0].digests, {"new": 1})


def test_a_missing_key_that_was_asked_for_is_missing_in_the_other_config():
    reads, _ = reads_of(lambda c: c.get("no", 3))
    assert matches(reads.digests, {**CONFIG, "a": 2})
    assert not matches(reads.digests, {**CONFIG, "no": 3})


def test_a_value_that_was_changed_in_place_is_compared_as_it_was_given():
    reads, values = reads_of(lambda c: (c["x"], c["y"]), {"x": [1], "y": np.zeros(2)})
    values[0].append(2)
    values[1][:] = 1

    assert matches(reads.digests, {"x": [1], "y": np.zeros(2)})
    assert not matches(reads.digests, {"x": [1, 2], "y": np.ones(2)})
