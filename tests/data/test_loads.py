"""Data loaded once for all configs that lead to the same data."""

from collections.abc import Mapping

import pytest

from tune_tf.data import LoadCache
from tune_tf.data.node_cache.recording_config import ConfigReads


def loads(load, *configs, keep=2):
    """Return how often a loader runs for configs in turn, and what each got."""
    calls = []

    def counted(config):
        calls.append(config)
        return load(config)

    cache = LoadCache(counted, keep)
    return len(calls), [cache.get(config) for config in configs], calls


@pytest.mark.parametrize(
    ("load", "first", "second", "num_loads"),
    [
        pytest.param(lambda c: c["a"], {"a": 1, "b": 1}, {"a": 1, "b": 2}, 1, id="another value"),
        pytest.param(lambda c: c["a"], {"a": 1}, {"a": 2}, 2, id="a value that was read"),
        pytest.param(lambda c: c["a"], {"a": 1}, {"a": 1.0}, 2, id="another type"),
        pytest.param(lambda c: c["a"], {"a": 1}, {"a": True}, 2, id="a bool is no int"),
        pytest.param(lambda c: c.get("a", 7), {}, {"b": 1}, 1, id="missing in both"),
        pytest.param(lambda c: c.get("a", 7), {}, {"a": 7}, 2, id="missing, then there"),
        pytest.param(lambda c: c.get("a", 7), {"a": 7}, {}, 2, id="there, then missing"),
        pytest.param(lambda c: "a" in c, {}, {"a": 1}, 2, id="in, missing then there"),
        pytest.param(lambda c: "a" in c, {"a": {"b": 1}}, {}, 2, id="in, a group then missing"),
        pytest.param(lambda c: "a" in c, {"a": {}}, {"a": {"b": 1}}, 1, id="in, both groups"),
        pytest.param(lambda c: c.get("a") is None, {"a": {"b": 1}}, {}, 2, id="get of a group"),
        pytest.param(
            lambda c: c["g"]["a"], {"g": {"a": 1, "b": 1}}, {"g": {"a": 1, "b": 2}}, 1, id="nested"
        ),
        pytest.param(
            lambda c: c["g"]["a"], {"g": {"a": 1}}, {"g": {"a": 2}}, 2, id="nested, another value"
        ),
        pytest.param(
            lambda c: c["g"].get("a", 1), {"g": {}}, {"g": {"b": 1}}, 1, id="nested, missing"
        ),
        pytest.param(
            lambda c: isinstance(c["g"], Mapping), {"g": {"b": 1}}, {"g": 3}, 2, id="group or value"
        ),
        pytest.param(lambda c: sorted(c), {"a": 1}, {"a": 2}, 2, id="iteration reads all"),
        pytest.param(lambda c: dict(c), {"a": 1}, {"a": 1}, 1, id="iteration, equal configs"),
        pytest.param(lambda c: len(c), {"a": 1}, {"b": 1}, 2, id="len reads all"),
        pytest.param(
            lambda c: dict(c["g"]), {"g": {"a": 1}, "b": 1}, {"g": {"a": 1}, "b": 2}, 1, id="group"
        ),
        pytest.param(
            lambda c: (c.get("g"), dict(c["g"])), {"g": {"a": 1}}, {"g": {"a": 2}}, 2, id="all"
        ),
        pytest.param(lambda c: 0, {"a": 1}, {"b": 2}, 1, id="nothing read"),
        pytest.param(lambda c: c["a"], {"a": [1, 2]}, {"a": [1, 2]}, 1, id="equal lists"),
    ],
)
def test_data_are_loaded_again_only_for_another_value_that_was_read(load, first, second, num_loads):
    _, _, calls = loads(load, first, second)

    assert len(calls) == num_loads


def test_the_data_set_used_longest_ago_goes_first():
    _, _, calls = loads(lambda c: c["a"], *({"a": a} for a in (1, 2, 1, 3, 1, 2)))

    assert [config["a"] for config in calls] == [1, 2, 3, 2]


def test_a_loader_that_fails_leaves_nothing_behind():
    cache = LoadCache(lambda config: 1 / config["a"])

    with pytest.raises(ZeroDivisionError):
        cache.get({"a": 0})
    assert cache.get({"a": 2}) == 0.5


def test_the_same_object_is_returned():
    _, (first, second), _ = loads(lambda c: [c["a"]], {"a": 1, "b": 1}, {"a": 1, "b": 2})

    assert first is second


def test_a_loader_sees_a_mapping_that_reads_like_the_config():
    config = {"a": 1, "g": {"b": 2}}
    recording = ConfigReads(config).recording

    assert isinstance(recording, Mapping)
    assert (recording["a"], recording["g"]["b"], recording.get("c", 3)) == (1, 2, 3)
    assert dict(recording.items())["a"] == 1
    assert len(recording) == 2


def test_a_missing_key_is_a_key_error():
    with pytest.raises(KeyError, match="b"):
        ConfigReads({"a": 1}).recording["b"]
