import math

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.forecast import Range

BAD = {
    "low above likely": (2, 1, 3),
    "likely above high": (1, 3, 2),
    "negative": (-1, 0, 1),
    "not finite": (0, 1, math.inf),
    "nan": (0, math.nan, 1),
}


@pytest.mark.parametrize("numbers", BAD.values(), ids=BAD.keys())
def test_numbers_that_are_no_range_are_refused(numbers):
    with pytest.raises(InvalidSettingsError, match="low <= likely <= high"):
        Range(*numbers)


def test_of_several_values_it_is_the_least_the_median_and_the_most():
    assert Range.of([3, 1, 10]) == Range(1, 3, 10)


def test_around_a_guess_it_never_falls_below_nothing():
    assert Range.around(10, less=0.5, more=1) == Range(5, 10, 20)
    assert Range.around(10, less=2, more=0).low == 0


def test_sums_and_multiples_keep_the_ends_together():
    assert Range(1, 2, 3) + Range(10, 20, 30) == Range(11, 22, 33)
    assert Range(1, 2, 3).times(2) == Range(2, 4, 6)


def test_taking_a_part_away_undoes_its_addition():
    whole = Range(1, 2, 3) + Range(10, 20, 30)
    assert whole.minus(Range(10, 20, 30)) == Range(1, 2, 3)


def test_taking_away_more_than_there_is_leaves_a_range():
    assert Range(5, 6, 7).minus(Range(1, 5, 10)) == Range(0, 1, 4)


def test_a_limit_cuts_all_three():
    assert Range(1, 5, 9).at_most(4) == Range(1, 4, 4)


def test_it_contains_its_ends():
    assert Range(1, 2, 3).contains(1)
    assert Range(1, 2, 3).contains(3)
    assert not Range(1, 2, 3).contains(3.1)
