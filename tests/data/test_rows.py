"""The rows of a data set."""

import numpy as np
import pytest

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.workload import Data

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("given", "floatx", "expected"),
    [
        pytest.param(X, "float32", "float32", id="float64"),
        pytest.param(X.astype("float16"), "float32", "float32", id="float16"),
        pytest.param(X, "float64", "float64", id="floatx is float64"),
        pytest.param(Y, "float32", "int64", id="integers stay"),
        pytest.param(X > 3, "float32", "bool", id="booleans stay"),
        pytest.param([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], "float32", "float32", id="list"),
    ],
)
def test_arrays_come_in_the_types_of_training(given, floatx, expected):
    assert rows_of(Data(train=(given, Y)), floatx=floatx).train[0].dtype == expected


def test_an_array_of_the_right_type_is_not_copied():
    x = X.astype("float32")

    assert rows_of(Data(train=(x, Y))).train[0] is x


@pytest.mark.parametrize(
    "x",
    [
        pytest.param({"a": X, "b": {"c": X}}, id="dicts"),
        pytest.param((X, (X, X)), id="tuples"),
        pytest.param([X, X[:, :1]], id="list"),
    ],
)
def test_several_inputs_keep_their_structure(x):
    rows = rows_of(Data(train=(x, Y)))

    assert type(rows.train[0]) is type(x)
    assert rows.num_train == 6


@pytest.mark.parametrize(
    ("train", "message"),
    [
        pytest.param(X, r"Data\.train must be a tuple \(x, y\).*not ndarray", id="array"),
        pytest.param((X,), "must be a tuple", id="one part"),
        pytest.param(iter(()), "from_generator for a generator", id="iterator"),
        pytest.param((X, Y[:4]), r"train\.x has 6, train\.y has 4", id="lengths"),
        pytest.param((X, Y, Y[:1]), r"train\.sample_weight has 1", id="weights"),
        pytest.param(
            ({"a": X, "b": X[:1]}, Y), r"train\.x\['a'\] has 6, train\.x\['b'\] has 1", id="inputs"
        ),
        pytest.param((X[:0], Y[:0]), "is empty: load_data returned no rows", id="empty"),
        pytest.param(({}, ()), "holds no arrays", id="no arrays"),
        pytest.param((3.0, Y), "arrays with rows on the first axis, not float", id="scalar"),
    ],
)
def test_what_is_wrong_with_training_rows_is_told(train, message):
    with pytest.raises(WorkloadError, match=message):
        rows_of(Data(train=train))


def test_something_else_than_data_is_refused():
    with pytest.raises(WorkloadError, match=r"must return tune_tf\.Data.*not tuple"):
        rows_of((X, Y))


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(Y, id="integers"),
        pytest.param(np.eye(3)[Y], id="one-hot"),
        pytest.param(Y.astype("float32"), id="floats"),
    ],
)
def test_class_weights_become_weights_of_rows(labels):
    rows = rows_of(Data(train=(X, labels), class_weight={0: 2.0, 2: 0.5}))

    np.testing.assert_array_equal(rows.train[2], np.float32([2, 1, 0.5, 2, 1, 0.5]))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        pytest.param((X, Y, Y), "both class_weight and sample_weight", id="both weights"),
        pytest.param((X, (Y, Y)), "class_weight needs a single output", id="two outputs"),
    ],
)
def test_class_weights_that_cannot_apply_are_refused(train, message):
    with pytest.raises(WorkloadError, match=message):
        rows_of(Data(train=train, class_weight={0: 2.0}))


def test_the_spec_tells_shapes_and_types_apart():
    def spec(*train, validation=None):
        return rows_of(Data(train=train, validation=validation)).spec

    specs = [
        spec(X, Y),
        spec(X[:5], Y[:5]),
        spec(X, Y.astype("int32")),
        spec(X, Y, Y),
        spec(X, Y, validation=(X, Y)),
        spec({"a": X}, Y),
        spec([X, X], Y),
    ]
    assert len(set(specs)) == len(specs)
    assert spec(X + 1, Y) == specs[0]
