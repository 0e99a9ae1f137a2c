"""Records turned into rows in this process."""

import importlib
import sys

import numpy as np
import pytest

from tune_tf.data import prepared
from tune_tf.data.digest import digest
from tune_tf.data.preparation import _task
from tune_tf.errors import InvalidSettingsError, WorkloadError


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """The process of the tests may be connected to one."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)


def image_of(number):
    return np.full((2, 3), number, np.float32)


def test_rows_are_those_of_a_plain_loop_in_its_order():
    rows = prepared([5, 3, 4], image_of)
    np.testing.assert_array_equal(rows, np.stack([image_of(number) for number in (5, 3, 4)]))
    assert not rows.flags.writeable


def test_bad_records_are_named_with_their_causes_and_the_place_of_the_first():
    def read(path):
        if path != "a.jpg":
            raise OSError(f"no {path} here")
        return 1.0

    text = r"^record 1 \(b\.jpg\): OSError: no b\.jpg here; record 3 \(c\.jpg\): .* here: fix these"
    with pytest.raises(WorkloadError, match=text) as caught:
        prepared(["a.jpg", "b.jpg", "a.jpg", "c.jpg"], read)
    assert "in read" in caught.value.__notes__[0]


def test_after_ten_bad_records_no_further_one_is_tried():
    tried = []

    def read(number):
        tried.append(number)
        raise KeyError(number)

    with pytest.raises(WorkloadError, match=r"record 9 \(9\): KeyError: 9, and maybe more"):
        prepared(range(50), read)
    assert len(tried) == 10


def test_an_empty_list_is_an_error():
    with pytest.raises(WorkloadError, match="there are no records to prepare"):
        prepared([], image_of)


UNLIKE = {
    "another shape": (np.zeros(3, np.float32), r"float32\[3\]"),
    "another type": (np.zeros(2, np.float64), r"float64\[2\]"),
    "a name": ({"a": np.zeros(2, np.float32)}, r"{'a': 'float32\[2\]'}"),
}


@pytest.mark.parametrize(("row", "told"), UNLIKE.values(), ids=UNLIKE.keys())
def test_a_row_unlike_the_first_is_a_bad_record(row, told):
    rows = [np.zeros(2, np.float32), row]
    with pytest.raises(
        WorkloadError, match=rf"record 1 .*its row is {told}, .* earlier record is float32"
    ):
        prepared([0, 1], rows.__getitem__)


NO_ROWS = {
    "none": (None, "NoneType"),
    "ragged": ([[1], [2, 3]], "inhomogeneous"),
    "empty": ({}, "dict"),
}


@pytest.mark.parametrize(("value", "told"), NO_ROWS.values(), ids=NO_ROWS.keys())
def test_what_is_no_row_is_told(value, told):
    with pytest.raises(WorkloadError, match=f"record 0 .*{told}"):
        prepared([0], lambda _: value)


def test_one_text_is_no_list_of_records():
    with pytest.raises(InvalidSettingsError, match="not one str"):
        prepared("a.jpg", image_of)


def test_a_function_that_is_another_one_where_it_arrives_is_not_called(tmp_path, monkeypatch):
    (tmp_path / "users_decoder.py").write_text("SIZE = 1\ndef decode(record): return record + SIZE")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    module = importlib.import_module("users_decoder")
    monkeypatch.setattr("ray.get", lambda it: it)
    packed = [module.decode], digest(module.decode)
    assert _task(*packed, None, 0, [1, 2]).arrays.tolist() == [2, 3]
    module.SIZE = 2
    with pytest.raises(WorkloadError, match="another function in this process"):
        _task(*packed, None, 0, [1, 2])
    del sys.modules["users_decoder"]
