"""Errors: their texts, their places and their way through pickle."""

import pickle

import pytest

from tune_tf import errors
from tune_tf.errors import ErrorDetail, InvalidSettingsError, TuneTfError, did_you_mean, one_of


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param(ErrorDetail("", "is empty"), "is empty", id="whole"),
        pytest.param(
            ErrorDetail("space.filters", "is empty"), "space.filters: is empty", id="place"
        ),
        pytest.param(ErrorDetail("name", "is bad", 4), "line 4: name: is bad", id="place-and-line"),
        pytest.param(ErrorDetail("", "is bad", 4), "line 4: is bad", id="line"),
    ],
)
def test_a_fault_shows_the_parts_that_are_known(fault, text):
    assert str(fault) == text


@pytest.mark.parametrize(
    ("faults", "source", "text"),
    [
        pytest.param(["is bad"], None, "is bad", id="one"),
        pytest.param(["a", "b"], None, "2 errors\n  a\n  b", id="two"),
        pytest.param(["a"], "x.yaml", "x.yaml: 1 error\n  a", id="one-of-a-file"),
        pytest.param(["a", "b"], "x.yaml", "x.yaml: 2 errors\n  a\n  b", id="two-of-a-file"),
    ],
)
def test_invalid_settings_tell_all_faults(faults, source, text):
    assert str(InvalidSettingsError(faults, source)) == text


def test_invalid_settings_cross_processes_whole():
    error = InvalidSettingsError([ErrorDetail("name", "is bad", 4), "is odd"], "x.yaml")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.details, copy.source, str(copy)) == (error.details, error.source, str(error))


LEAVES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, TuneTfError) and value is not TuneTfError
]


@pytest.mark.parametrize("error", LEAVES, ids=lambda error: error.__name__)
def test_every_error_is_a_builtin_one_too(error):
    builtins = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert set(builtins) - {Exception, BaseException, object}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("adm", "; did you mean 'adam'?", id="near"),
        pytest.param("zzz", "", id="none-near"),
        pytest.param(3, "", id="no-text"),
    ],
)
def test_the_nearest_name_is_guessed(name, text):
    assert did_you_mean(name, ["adam", "sgd"]) == text


def test_one_of_lists_names():
    assert one_of(["adam", "sgd"]) == "one of 'adam', 'sgd'"
