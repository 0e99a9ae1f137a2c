"""Records turned into rows in this process."""

import importlib
import logging
import sys

import numpy as np
import pytest

from tune_tf.data import BadRecord, prepared
from tune_tf.data.digest import digest
from tune_tf.data.preparation import _task
from tune_tf.errors import InvalidSettingsError, WorkloadError


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    """The process of the tests may be connected to one."""
    monkeypatch.delitem(sys.modules, "ray", raising=False)


def image_of(number):
    return np.full((2, 3), number, np.float32)


def even_only(number):
    if number % 2:
        raise KeyError(f"no picture {number}")
    return image_of(number)


def test_rows_are_those_of_a_plain_loop_in_its_order():
    rows = prepared([5, 3, 4], image_of).rows
    np.testing.assert_array_equal(rows, np.stack([image_of(number) for number in (5, 3, 4)]))
    assert not rows.flags.writeable


def test_the_first_bad_record_is_named_with_its_cause_and_the_way_out():
    text = (
        r"record 1 \(b\.jpg\): OSError: no b\.jpg here; fix or remove the record, "
        r".* on_bad_record: skip"
    )

    def read(path):
        if path != "a.jpg":
            raise OSError(f"no {path} here")
        return 1.0

    with pytest.raises(WorkloadError, match=text):
        prepared(["a.jpg", "b.jpg", "c.jpg"], read)


def test_the_place_where_a_record_failed_is_noted_and_no_further_one_is_tried():
    tried = []

    def read(number):
        tried.append(number)
        return even_only(number)

    with pytest.raises(WorkloadError, match=r"record 1 .*KeyError") as caught:
        prepared(range(5), read)
    assert "in even_only" in caught.value.__notes__[0]
    assert tried == [0, 1]


def test_bad_records_are_left_out_on_request():
    found = prepared(range(5), even_only, on_bad_record="skip")
    assert found.rows[:, 0, 0].tolist() == [0, 2, 4]
    assert found.kept.tolist() == [0, 2, 4]
    assert found.skipped == (
        BadRecord(1, "1", "KeyError: 'no picture 1'"),
        BadRecord(3, "3", "KeyError: 'no picture 3'"),
    )


def test_what_is_left_out_is_logged_once_with_the_first_ones(caplog):
    with caplog.at_level(logging.WARNING):
        prepared(range(10), even_only, on_bad_record="skip")
    (told,) = caplog.messages
    assert told.startswith("5 of 10 records were skipped: record 1 (1): KeyError")
    assert told.endswith("and 2 more")


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([1, 3], r"none of the 2 records .*record 0 \(1\): KeyError"),
        ([], "there are no records to prepare"),
    ],
)
def test_no_row_at_all_is_an_error(records, text):
    with pytest.raises(WorkloadError, match=text):
        prepared(records, even_only, on_bad_record="skip")


UNLIKE = {
    "another shape": (np.zeros(3, np.float32), r"float32\[3\]"),
    "another type": (np.zeros(2, np.float64), r"float64\[2\]"),
    "a name": ({"a": np.zeros(2, np.float32)}, r"{'a': 'float32\[2\]'}"),
}


@pytest.mark.parametrize(("row", "told"), UNLIKE.values(), ids=UNLIKE.keys())
def test_a_row_unlike_the_first_is_a_bad_record(row, told):
    rows = [np.zeros(2, np.float32), row]
    with pytest.raises(
        WorkloadError, match=rf"record 1 .*its row is {told}, .*record 0 is float32"
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


@pytest.mark.parametrize(
    ("records", "settings", "match"),
    [("a.jpg", {}, "not one str"), ([1], {"on_bad_record": "skipp"}, "did you mean 'skip'")],
)
def test_wrong_arguments_are_refused(records, settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        prepared(records, image_of, **settings)


def test_a_function_that_is_another_one_where_it_arrives_is_not_called(tmp_path, monkeypatch):
    (tmp_path / "users_decoder.py").write_text("SIZE = 1\ndef decode(record): return record + SIZE")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    module = importlib.import_module("users_decoder")
    monkeypatch.setattr("ray.get", lambda it: it)
    packed = [module.decode], digest(module.decode)
    _, rows, _ = _task(*packed, None, 0, [1, 2], stop=True)
    assert rows.tolist() == [2, 3]
    module.SIZE = 2
    with pytest.raises(WorkloadError, match="another function in this process"):
        _task(*packed, None, 0, [1, 2], stop=True)
    del sys.modules["users_decoder"]
