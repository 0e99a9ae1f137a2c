"""Training and validation rows put together."""

import numpy as np
import pytest

from tune_tf import Data
from tune_tf.data.rows import all_to_train
from tune_tf.errors import WorkloadError


def part(start, count, **more):
    x = np.arange(start, start + count, dtype=np.float32)[:, None]
    return (x, x[:, 0].astype(np.int32), *more.values())


def test_rows_to_validate_on_follow_those_to_train_on():
    test = part(9, 2)
    joined = all_to_train(Data(part(0, 3), part(3, 2), test))

    assert joined.train[0][:, 0].tolist() == joined.train[1].tolist() == [0, 1, 2, 3, 4]
    assert joined.validation is None
    assert joined.test is test


def test_rows_without_a_weight_count_as_one():
    joined = all_to_train(Data(part(0, 2, weights=np.array([2.0, 3.0])), part(2, 1)))

    assert joined.train[2].tolist() == [2, 3, 1]


def test_class_weights_are_of_all_rows():
    weighed = part(2, 1, weights=np.array([5.0]))
    joined = all_to_train(Data(part(0, 2), weighed, class_weight={2: 4.0}))

    assert len(joined.train) == 2
    assert joined.class_weight == {2: 4.0}


def test_rows_of_another_form_are_refused():
    with pytest.raises(
        WorkloadError, match=r"must have one form to be concatenated.*\[1, 1\].*\[1, 2\]"
    ):
        all_to_train(Data(part(0, 2), (np.zeros((2, 2), np.float32), np.zeros(2, np.int32))))


def test_rows_that_are_no_arrays_are_refused():
    with pytest.raises(WorkloadError, match=r"concatenated as arrays, but Data.train is a range"):
        all_to_train(Data(range(3), part(2, 1)))
