"""Errors: their texts, their places and their way through pickle."""

import pickle

import pytest

from tune_tf import errors
from tune_tf.errors import ErrorDetail, InvalidSettingsError, TuneTfError, did_you_mean, one_of


@pytest.mark.parametrize(
    ("details", "source", "text"),
    [
        (["is bad"], None, "is bad"),
        ([ErrorDetail("name", "is bad", 4)], None, "line 4: name: is bad"),
        ([ErrorDetail("", "is bad", 4)], None, "line 4: is bad"),
        ([ErrorDetail("a.b", "is bad"), "b"], None, "2 errors\n  a.b: is bad\n  b"),
        (["a"], "x.yaml", "x.yaml: 1 error\n  a"),
    ],
)
def test_invalid_settings_name_all_errors_in_every_process(details, source, text):
    error = InvalidSettingsError(details, source)
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == str(copy) == text
    assert (copy.details, copy.source) == (error.details, error.source)


LEAVES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, TuneTfError) and value is not TuneTfError
]


@pytest.mark.parametrize("error", LEAVES, ids=lambda error: error.__name__)
def test_every_error_is_a_builtin_one_too(error):
    builtins = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert set(builtins) - {Exception, BaseException, object}


def test_the_nearest_name_is_guessed():
    assert did_you_mean("adm", ["adam", "sgd"]) == "; did you mean 'adam'?"
    assert did_you_mean("grace", ["brackets", "grace_period"]) == "; did you mean 'grace_period'?"
    assert did_you_mean("zzz", ["adam", "sgd"]) == did_you_mean(3, ["adam"]) == ""
    assert one_of(["adam", "sgd"]) == "one of 'adam', 'sgd'"
