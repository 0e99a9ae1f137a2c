"""Rows in folds: which are held out, with which weights, and what cannot be split."""

import itertools

import numpy as np
import pytest

from tune_tf.data import FoldedRows
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Folds
from tune_tf.workload import Data

NUM_ROWS = 30


def numbered(num_rows=NUM_ROWS, first=0):
    """Return rows that tell their number, and labels of three classes."""
    number = np.arange(first, first + num_rows)
    return number.astype("float32")[:, None], (number % 3).astype("int32")


def data(**given):
    """Return 20 rows to train on and 10 to validate on, or what is given in their place."""
    return Data(**{"train": numbered(20), "validation": numbered(10, 20)} | given)


def numbers(part):
    return part[0][:, 0].astype(int).tolist()


def held_out(folded, num):
    return [numbers(folded.rows(i).validation) for i in range(num)]


def all_of(folds):
    return sorted(itertools.chain.from_iterable(folds))


def test_every_row_is_held_out_once_and_trained_on_by_the_other_folds():
    folded = FoldedRows(data(), Folds(4), seed=1)
    rows = folded.rows(2)

    assert all_of(held_out(folded, 4)) == list(range(NUM_ROWS))
    assert sorted(numbers(rows.train) + numbers(rows.validation)) == list(range(NUM_ROWS))
    assert (rows.num_train, rows.num_validation) == (len(rows.train[1]), len(rows.validation[1]))


def test_the_split_follows_from_the_seed_and_differs_in_each_repeat():
    folds = Folds(3, num_repeats=2)
    splits = [held_out(FoldedRows(data(), folds, seed=seed), 6) for seed in (1, 1, 2)]

    assert splits[0] == splits[1] != splits[2]
    assert all_of(splits[0][3:]) == list(range(NUM_ROWS))
    assert splits[0][:3] != splits[0][3:]


@pytest.mark.parametrize("encode", [lambda y: y, lambda y: np.eye(3)[y]], ids=["ids", "one-hot"])
def test_stratified_folds_have_equal_shares_of_each_class(encode):
    x, y = numbered()
    folded = FoldedRows(Data((x, encode(y))), Folds(5, stratified=True), seed=1)
    labels = [y[numbers(folded.rows(i).validation)] for i in range(5)]

    assert [np.bincount(each).tolist() for each in labels] == [[2, 2, 2]] * 5


@pytest.mark.parametrize("settings", [{}, {"stratified": True}, {"num_repeats": 2}], ids=str)
def test_rows_of_a_group_stay_together(settings):
    folds = Folds(3, grouped=True, **settings)
    groups = np.arange(NUM_ROWS) // 4
    folded = FoldedRows(data(groups=groups), folds, seed=1)

    for rows in map(folded.rows, range(folds.num_subtasks)):
        assert not set(groups[numbers(rows.train)]) & set(groups[numbers(rows.validation)])


def test_rows_without_a_weight_count_once_beside_those_with_one():
    train = (*numbered(20), np.full(20, 2.0))
    rows = FoldedRows(Data(train, numbered(10, 20)), Folds(3), seed=1).rows(0)

    assert rows.train[2].tolist() == [2 if number < 20 else 1 for number in numbers(rows.train)]
    assert len(rows.validation) == 2


def test_class_weights_weigh_training_rows_only():
    rows = FoldedRows(data(class_weight={1: 5.0}), Folds(3), seed=1).rows(0)

    assert rows.train[2].tolist() == [5 if label == 1 else 1 for label in rows.train[1]]
    assert len(rows.validation) == 2


RARE = Data((np.zeros((9, 1)), np.array([0] * 7 + [4] * 2)))
TWO_OUTPUTS = Data((np.zeros((9, 1)), {"a": np.zeros(9), "b": np.zeros(9)}))


@pytest.mark.parametrize(
    ("given", "folds", "match"),
    [
        pytest.param(data(), Folds(31), "into 31 folds: .* n_samples=30", id="rows"),
        pytest.param(
            RARE,
            Folds(3, stratified=True),
            "into 3 folds: .* class in y has only 2 members",
            id="class",
        ),
        pytest.param(
            data(groups=np.arange(NUM_ROWS) // 20),
            Folds(3, grouped=True),
            "into 3 folds: .* number of groups: 2",
            id="groups",
        ),
        pytest.param(
            data(),
            Folds(grouped=True),
            r"let load_data return Data.groups, .* not \(\)",
            id="no groups",
        ),
        pytest.param(
            Data(numbered(20), range(3)), Folds(), "Data.validation is a range", id="no arrays"
        ),
        pytest.param([], Folds(), "must return tune_tf.Data", id="no data"),
        pytest.param(
            TWO_OUTPUTS, Folds(stratified=True), "need a single output", id="several outputs"
        ),
        pytest.param(
            Data((np.zeros((9, 1)), np.arange(9) / 2)),
            Folds(stratified=True),
            "output of class labels",
            id="real numbers",
        ),
        pytest.param(
            data(validation=(np.zeros((5, 2)), np.zeros(5, "int32"))),
            Folds(),
            "must have one form",
            id="other shape",
        ),
    ],
)
def test_what_cannot_be_split_is_told(given, folds, match):
    with pytest.raises(WorkloadError, match=match):
        FoldedRows(given, folds, seed=1)
