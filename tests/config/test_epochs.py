"""``epochs``, the limit of a trial, and the scheduler's ``max_t``, which is the same number."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.config.scheduler_settings import SCHEDULERS
from tune_tf.errors import InvalidSettingsError

MINIMAL = {
    "name": "digits",
    "workload": "tune_tf.workloads.digits:DigitsMLP",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {"width": 64},
    "budget": {"num_samples": 2},
}


def config_of(**settings):
    return SweepConfig.from_dict({**MINIMAL, **settings})


each = pytest.mark.parametrize("name", [*SCHEDULERS, "HyperBandScheduler", "MedianStoppingRule"])


@each
def test_epochs_limit_trials_under_each_scheduler(name):
    config = config_of(epochs=7, scheduler={"name": name})
    assert (config.epochs, config.scheduler.max_t) == (7, 7)
    assert SweepConfig.from_dict(config.to_dict()) == config
    assert config_of(scheduler=config.scheduler) == config


@each
def test_max_t_of_a_scheduler_is_the_same_setting(name):
    config = config_of(scheduler={"name": name, "max_t": 7})
    assert config == config_of(scheduler={"name": name}, epochs=7)
    assert "max_t" not in config.to_dict()["scheduler"]


def test_a_grace_period_above_the_default_limit_fits_more_epochs():
    scheduler = {"name": "asha", "grace_period": 150}
    assert config_of(epochs=200, scheduler=scheduler).scheduler.grace_period == 150
    with pytest.raises(InvalidSettingsError, match=r"scheduler\.grace_period: .*150"):
        config_of(epochs=20, scheduler=scheduler)


def test_two_different_limits_are_refused():
    with pytest.raises(InvalidSettingsError) as caught:
        config_of(epochs=7, scheduler={"name": "asha", "max_t": 9})
    text = "scheduler.max_t: is 9 but epochs is 7: leave one of the two out"
    assert str(caught.value) == text


@pytest.mark.parametrize("epochs", [0, -1, "10", 2.5, True])
def test_an_invalid_number_of_epochs_is_refused_beside_other_errors(epochs):
    with pytest.raises(InvalidSettingsError) as caught:
        config_of(epochs=epochs, scheduler={"name": "asah"})
    assert [detail.where for detail in caught.value.details] == ["epochs", "scheduler.name"]
