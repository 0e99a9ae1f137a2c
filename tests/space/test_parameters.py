"""Float, Int, Choice, Constant: what they refuse, hold and draw."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters_strategy import parameters

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int
from tune_tf.space.parameter import smallest_number


@pytest.mark.parametrize(
    ("make", "match"),
    [
        pytest.param(lambda: Float(2, 1), "low 2 is above high 1: give the smaller", id="order"),
        pytest.param(lambda: Float(0, 1, log=True), "low must be above 0 .* not 0", id="log-of-0"),
        pytest.param(lambda: Float(0, 1, step=0), "step must be above 0, not 0", id="step-0"),
        pytest.param(lambda: Float(0, 1, step=-1), "step must be above 0, not -1", id="step-below"),
        pytest.param(
            lambda: Float(1, 2, log=True, step=1), "has no step, but step is 1", id="log-step"
        ),
        pytest.param(lambda: Float(0, 1, step=0.3), "0.9 is the nearest below", id="off-grid"),
        pytest.param(lambda: Float(low=True, high=1), "low must be a number, not True", id="bool"),
        pytest.param(lambda: Float("0", 1), "not '0': write low without quotes", id="text"),
        pytest.param(lambda: Float(0, float("inf")), "high must be finite, not inf", id="inf"),
        pytest.param(lambda: Float(float("nan"), 1), "low must be finite, not nan", id="nan"),
        pytest.param(lambda: Float(0, 1, log=1), "log must be true or false, not 1", id="log-1"),
        pytest.param(lambda: Int(1.5, 3), "low must be an integer, not 1.5", id="int-half"),
        pytest.param(lambda: Int(1, 3, step=0), "step must be above 0, not 0", id="int-step"),
        pytest.param(lambda: Int(0, 3, log=True), "low must be above 0", id="int-log-of-0"),
        pytest.param(lambda: Int(1, 9, log=True, step=2), "has no step", id="int-log-step"),
        pytest.param(lambda: Int(1, 8, step=2), "7 is the nearest below it", id="int-off-grid"),
        pytest.param(
            lambda: Int(low=1, high=False), "high must be an integer, not False", id="int-bool"
        ),
        pytest.param(lambda: Choice([]), "options must not be empty", id="no-option"),
        pytest.param(lambda: Choice("adam"), r"not 'adam': write \[adam\]", id="choice-text"),
        pytest.param(lambda: Choice({"a": 1}), "options must be a list", id="choice-mapping"),
        pytest.param(lambda: Choice(["a", "a"]), "option 'a' is given twice", id="twice"),
        pytest.param(lambda: Choice([1, True]), r"True \(equal to 1\) is given twice", id="equal"),
        pytest.param(lambda: Choice([[1], [1]]), r"\[1\] is given twice", id="lists-twice"),
        pytest.param(lambda: Constant(1, when="sgd"), "`when` must map a parameter", id="when"),
        pytest.param(lambda: Constant(1, when={"a": []}), "allows no value of 'a'", id="when-none"),
        pytest.param(lambda: Constant(1, when={3: 1}), "as text, not 3", id="when-number"),
    ],
)
def test_bad_parameters_are_refused(make, match):
    with pytest.raises(InvalidSettingsError, match=match):
        make()


@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(lambda: Float(2, -1, log=True, step=1, when=3), 3, id="float"),
        pytest.param(lambda: Int("a", None, when={}), 2, id="int"),
        pytest.param(lambda: Choice(["a", "a", "b", "b"], when=3), 3, id="choice"),
    ],
)
def test_all_errors_of_a_parameter_are_reported_at_once(make, count):
    with pytest.raises(InvalidSettingsError, match=f"{count} errors") as caught:
        make()
    assert len(caught.value.details) == count


@pytest.mark.parametrize(
    ("parameter", "value", "match"),
    [
        pytest.param(Float(0, 1), 0, None, id="float-low"),
        pytest.param(Float(0, 1), 1.0, None, id="float-high"),
        pytest.param(Float(0, 1), np.float32(0.5), None, id="float-numpy"),
        pytest.param(Float(0, 1), 1.01, "a number from 0 to 1, not 1.01", id="float-above"),
        pytest.param(Float(0, 1), True, "a number from 0 to 1, not True", id="float-bool"),
        pytest.param(Float(0, 1, step=0.1), 0.1 * 3, None, id="float-rounded-step"),
        pytest.param(Float(0, 1, step=0.1), 0.25, "0 plus a multiple of 0.1", id="float-between"),
        pytest.param(Float(0.1, 1, log=True), np.exp(np.log(0.1)), None, id="log-rounded"),
        pytest.param(Int(1, 3), 1, None, id="int-low"),
        pytest.param(Int(1, 3), np.int64(3), None, id="int-high"),
        pytest.param(Int(1, 3), 4, "an integer from 1 to 3, not 4", id="int-above"),
        pytest.param(Int(1, 3), 2.0, "an integer from 1 to 3, not 2.0", id="int-float"),
        pytest.param(Int(0, 3), True, "an integer from 0 to 3, not True", id="int-bool"),
        pytest.param(Int(1, 7, step=3), 5, "1 plus a multiple of 3, not 5", id="int-between"),
        pytest.param(Choice(["a", None]), None, None, id="choice"),
        pytest.param(Choice([(3, 3)]), [3, 3], None, id="choice-after-json"),
        pytest.param(Choice(["adam"]), "adm", r"did you mean 'adam'\?", id="choice-near"),
        pytest.param(Choice([{"a": 1}]), {"a": 2}, "must be one of", id="choice-mapping"),
        pytest.param(Constant(3), 3, None, id="constant"),
        pytest.param(Constant(3), 4, "must be 3, not 4", id="constant-other"),
    ],
)
def test_a_value_is_judged(parameter, value, match):
    text = parameter.error_for(value)
    assert (text is None) == (match is None)
    assert pytest.RaisesExc(ValueError, match=match).matches(ValueError(text or ""))


@given(parameters, st.integers(0, 2**32))
@settings(max_examples=100)
def test_what_is_drawn_is_held(parameter, seed):
    assert parameter.error_for(parameter.draw(np.random.default_rng(seed))) is None


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        pytest.param(Int(1, 3), {1, 2, 3}, id="int"),
        pytest.param(Int(1, 3, log=True), {1, 2, 3}, id="log-int"),
        pytest.param(Int(1, 7, step=3), {1, 4, 7}, id="stepped-int"),
        pytest.param(Float(0.5, 1.5, step=0.5), {0.5, 1.0, 1.5}, id="stepped-float"),
        pytest.param(Choice(["a", 1, None]), {"a", 1, None}, id="choice"),
        pytest.param(Float(2, 2), {2.0}, id="one-point"),
    ],
)
def test_both_ends_are_drawn(parameter, values):
    rng = np.random.default_rng(0)
    assert {parameter.draw(rng) for _ in range(100)} == values


@given(parameters)
@settings(max_examples=50)
def test_parameters_compare_hash_and_pickle(parameter):
    copy = pickle.loads(pickle.dumps(parameter))
    assert copy == parameter
    assert hash(copy) == hash(parameter)


def test_whole_floats_become_the_type_of_their_range():
    assert repr(Int(1.0, 1e3)) == repr(Int(1, 1000))
    assert repr(Float(0, 1)) == repr(Float(0.0, 1.0))


def test_the_ends_of_a_stepped_range_are_the_decimals_that_were_meant():
    given = Float(0.1 + 0.2, 0.1 * 17, step=0.1)  # 0.30000000000000004, 1.7000000000000002
    assert (given.low, given.high, given.step) == (0.3, 1.7, 0.1)


@pytest.mark.parametrize(
    ("parameter", "smallest"),
    [
        pytest.param(Float(0.5, 1), 0.5, id="float"),
        pytest.param(Int(3, 5), 3, id="int"),
        pytest.param(Choice(["a", 8, 4]), 4, id="choice"),
        pytest.param(Choice(["a"]), None, id="no-number"),
        pytest.param(Constant(64), 64, id="constant"),
    ],
)
def test_the_smallest_number_is_known(parameter, smallest):
    assert smallest_number(parameter) == smallest
