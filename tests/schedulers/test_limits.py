import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.schedulers import Limits


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_t": 0}, "max_t: must be a whole number of at least 1, not 0"),
        ({"max_t": 2.5}, "max_t: must be a whole number of at least 1, not 2.5"),
        ({"grace_period": True}, "grace_period: must be a whole number of at least 1, not True"),
        ({"max_t": 3, "grace_period": 4}, "grace_period: 4 is more than max_t=3"),
        ({"reduction_factor": 1}, "reduction_factor: must be above 1, not 1"),
        ({"reduction_factor": float("nan")}, "reduction_factor: must be above 1, not nan"),
        ({"reduction_factor": "3"}, "reduction_factor: must be a number above 1, not '3'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_limit_is_refused_with_its_value(settings, message):
    with pytest.raises(InvalidSettingsError, match=message):
        Limits(**settings)


def test_all_wrong_limits_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match=r"3 faults(\n.*){3}") as caught:
        Limits(max_t=0, grace_period=-1, reduction_factor=0)
    assert [fault.where for fault in caught.value.faults] == [
        "max_t",
        "grace_period",
        "reduction_factor",
    ]


def test_a_trial_may_be_left_alone_up_to_its_limit():
    assert Limits(max_t=5, grace_period=5).grace_period == 5
