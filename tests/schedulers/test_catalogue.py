import subprocess
import sys

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective

pytestmark = pytest.mark.ray
LOSS = Objective("val_loss", "min")


@pytest.mark.parametrize(
    ("name", "ray_class"), [("asha", "AsyncHyperBandScheduler"), ("fifo", "FIFOScheduler")]
)
def test_a_scheduler_is_one_of_rays(name, ray_class):
    from ray.tune import schedulers

    from tune_tf.schedulers import scheduler

    assert isinstance(scheduler(name, LOSS), getattr(schedulers, ray_class))


def test_an_unknown_name_is_refused_with_those_known_and_a_guess():
    from tune_tf.schedulers import scheduler

    with pytest.raises(
        InvalidSettingsError,
        match="unknown scheduler 'asah': it must be one of 'asha', 'fifo'; did you mean 'asha'",
    ):
        scheduler("asah", LOSS)


def test_an_unknown_name_and_wrong_limits_are_told_at_once():
    from tune_tf.schedulers import scheduler

    with pytest.raises(InvalidSettingsError, match=r"(?s)2 faults.*hyper.*grace_period: 9"):
        scheduler("hyper", LOSS, max_t=3, grace_period=9)


def test_the_schedulers_load_neither_tensorflow_nor_optuna():
    code = (
        "import sys; from tune_tf.schedulers import scheduler;"
        "sys.exit(bool({'tensorflow', 'keras', 'optuna', 'mlflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["asha", "fifo"])
def test_the_metric_given_to_tune_as_well_is_accepted(name):
    from tune_tf.schedulers import scheduler

    assert scheduler(name, LOSS).set_search_properties("val_loss", "min", stop={})


@pytest.mark.parametrize("name", ["asha", "fifo"])
def test_another_metric_given_to_tune_is_refused(name):
    from tune_tf.schedulers import scheduler

    with pytest.raises(
        InvalidSettingsError, match=r"metric='loss', mode=None.*metric='val_loss', mode='min'"
    ):
        scheduler(name, LOSS).set_search_properties("loss", None)
