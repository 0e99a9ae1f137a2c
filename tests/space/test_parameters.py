"""Float, Int, Choice, Constant: what they hold and draw."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters_strategy import parameters

from tune_tf.space import Choice, Constant, Float, Int
from tune_tf.space.parameter import smallest_number


@pytest.mark.parametrize(
    ("parameter", "value", "match"),
    [
        (Float(0, 1), 0, None),
        (Float(0, 1), 1.0, None),
        (Float(0, 1), np.float32(0.5), None),
        (Float(0, 1), 1.01, "a number from 0 to 1, not 1.01"),
        (Float(0, 1), True, "a number from 0 to 1, not True"),
        (Float(0, 1, step=0.1), 0.1 * 3, None),  # 0.30000000000000004
        (Float(0, 1, step=0.1), 0.25, "0 plus a multiple of 0.1"),
        (Float(0.1, 1, log=True), np.exp(np.log(0.1)), None),
        (Int(1, 3), 1, None),
        (Int(1, 3), np.int64(3), None),
        (Int(1, 3), 4, "an integer from 1 to 3, not 4"),
        (Int(1, 3), 2.0, "an integer from 1 to 3, not 2.0"),
        (Int(0, 3), True, "an integer from 0 to 3, not True"),
        (Int(1, 7, step=3), 5, "1 plus a multiple of 3, not 5"),
        (Choice(["a", None]), None, None),
        (Choice([(3, 3)]), [3, 3], None),  # after JSON
        (Choice(["adam"]), "adm", "must be one of 'adam', not 'adm'; did you mean 'adam'?"),
        (Choice([{"a": 1}]), {"a": 2}, "must be one of"),
        (Constant(3), 3, None),
        (Constant(3), 4, "must be 3, not 4"),
    ],
)
def test_a_value_is_judged(parameter, value, match):
    text = parameter.error_for(value)
    assert (text is None) == (match is None)
    assert (match or "") in (text or "")


@given(parameters, st.integers(0, 2**32))
@settings(max_examples=100)
def test_a_parameter_holds_what_it_draws_and_compares_and_pickles(parameter, seed):
    assert parameter.error_for(parameter.draw(np.random.default_rng(seed))) is None
    copy = pickle.loads(pickle.dumps(parameter))
    assert copy == parameter


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (Int(1, 3), {1, 2, 3}),
        (Int(1, 3, log=True), {1, 2, 3}),
        (Int(1, 7, step=3), {1, 4, 7}),
        (Float(0.5, 1.5, step=0.5), {0.5, 1.0, 1.5}),
        (Choice(["a", 1, None]), {"a", 1, None}),
        (Float(2, 2), {2.0}),
    ],
)
def test_both_ends_are_drawn(parameter, values):
    rng = np.random.default_rng(0)
    assert {parameter.draw(rng) for _ in range(100)} == values


def test_numbers_become_the_type_of_their_range():
    assert repr(Int(1.0, 1000)) == repr(Int(1, 1000))


def test_the_ends_of_a_stepped_range_are_the_decimals_that_were_meant():
    given = Float(0.1 + 0.2, 0.1 * 17, step=0.1)  # 0.30000000000000004, 1.7000000000000002
    assert (given.low, given.high, given.step) == (0.3, 1.7, 0.1)


@pytest.mark.parametrize(
    ("parameter", "smallest"),
    [
        (Float(0.5, 1), 0.5),
        (Int(3, 5), 3),
        (Choice(["a", 8, 4]), 4),
        (Choice(["a"]), None),
        (Constant(64), 64),
    ],
)
def test_the_smallest_number_is_known(parameter, smallest):
    assert smallest_number(parameter) == smallest
