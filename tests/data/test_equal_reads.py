"""Which values of two configs count as the same when all of a config was read."""

import threading

import numpy as np
import pandas as pd
import pytest

from tune_tf.data.config_reads import ConfigReads, matches


def reads_of(config):
    """Return the reads of a loader that reads all of a config."""
    reads = ConfigReads(config)
    dict(reads.recording)
    return reads


nan = float("nan")


class Loud:
    """Says that it equals everything."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True

    __hash__ = None


def closing_over(number):
    return lambda: number


SAME = {
    "arrays": (np.arange(3), np.arange(3)),
    "arrays in lists": ([np.arange(3), (np.ones(2),)], [np.arange(3), (np.ones(2),)]),
    "orders in memory": (np.zeros((2, 3), order="F"), np.zeros((2, 3))),
    "nan": (nan, float("nan")),
    "arrays of nan": (np.array([nan]), np.array([nan])),
    "objects in an array": (np.array([1, "a"], object), np.array([1, "a"], object)),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]})),
    "functions": (lambda: 1, lambda: 1),
    "objects": (Loud(1), Loud(1)),
    "big numbers": (10**500, 10**500),
}
OTHER = {
    "arrays": (np.arange(3), np.array([0, 1, 3])),
    "types of arrays": (np.arange(3), np.arange(3.0)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "an array and a list": (np.arange(3), [0, 1, 2]),
    "arrays in lists": ([np.arange(3)], [np.arange(1, 4)]),
    "arrays in tuples": ((1, (np.arange(3),)), (1, (np.arange(1, 4),))),
    "masks": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "1 and True": (1, True),
    "1 and 1.0": (1, 1.0),
    "1 and True in a list": ([1], [True]),
    "0.0 and -0.0": (0.0, -0.0),
    "0.0 and -0.0 in a list": ([0.0], [-0.0]),
    "float32 and float64": (np.float32(1), np.float64(1)),
    "numpy's and Python's": (np.float64(1), 1.0),
    "a list and a tuple": ([1], (1,)),
    "a text and bytes": ("a", b"a"),
    "functions": (lambda: 1, lambda: 2),
    "closures": (closing_over(1), closing_over(2)),
    "equal to everything": (Loud(1), Loud(2)),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
    "locks": (threading.Lock(), threading.Lock()),
    "keys that are equal": ({1: 2}, {True: 2}),
    "a group": ({"c": [1]}, {"c": [True]}),
    "boundaries": (["ab", "c"], ["a", "bc"]),
}


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME.keys())
def test_equal_values_are_the_same_reads(first, second):
    assert matches(reads_of({"x": first}).digests, {"x": second})


@pytest.mark.parametrize(("first", "second"), OTHER.values(), ids=OTHER.keys())
def test_values_are_the_same_only_if_type_and_content_are(first, second):
    reads = reads_of({"x": first})
    assert not matches(reads.digests, {"x": second})
