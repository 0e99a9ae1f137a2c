"""How a trial validates."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.validation import Validation


@pytest.mark.parametrize("value", ["yes", 1, None], ids=repr)
def test_what_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(InvalidSettingsError, match="asynchronous must be true or false"):
        Validation(asynchronous=value)
