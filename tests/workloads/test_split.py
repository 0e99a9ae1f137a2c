"""Rows divided into parts."""

from types import SimpleNamespace

import numpy as np
import pytest

from tune_tf.errors import WorkloadError
from tune_tf.workloads.settings_workload import DataSettings, row_splits


def settings(**shares):
    return DataSettings(path="data", **shares)


def split_of(*arguments):
    """Return the rows of each part by attribute."""
    parts = dict.fromkeys(("train", "validation", "test"), np.array([], int))
    return SimpleNamespace(**parts | row_splits(*arguments))


@pytest.mark.parametrize("num_rows", [10, 97, 1000])
@pytest.mark.parametrize("shares", [(0.2, 0.1), (0.5, 0.0), (0.0, 0.3), (0.33, 0.33)])
def test_each_row_is_in_one_part_and_the_parts_have_their_sizes(num_rows, shares):
    validation, test = shares
    split = split_of(num_rows, settings(validation_share=validation, test_share=test))

    together = np.concatenate([split.train, split.validation, split.test])
    assert sorted(together) == list(range(num_rows))
    assert len(split.validation) == round(num_rows * validation)
    assert len(split.test) == round(num_rows * test)


def test_each_class_has_its_share_in_each_part_give_or_take_a_row():
    classes = np.repeat([0, 1, 2], [70, 20, 10])
    split = split_of(100, settings(validation_share=0.2, test_share=0.1), classes)

    counts = np.bincount(classes[split.validation])
    assert np.abs(counts - [14, 4, 2]).max() <= 1
    assert np.abs(np.bincount(classes[split.test]) - [7, 2, 1]).max() <= 1


def test_the_parts_follow_from_the_seed():
    first, again, other = (split_of(50, settings(seed=seed)).train for seed in (1, 1, 2))

    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_too_few_rows_for_all_parts_are_told():
    with pytest.raises(
        WorkloadError, match=r"2 row\(s\) are too few: .* none for validation and test"
    ):
        split_of(2, settings())
