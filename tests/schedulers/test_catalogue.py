import subprocess
import sys

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LOSS = Objective("val_loss", "min")


KINDS = {
    "asha": "AsyncHyperBandScheduler",
    "bohb": "HyperBandForBOHB",
    "auto": "FIFOScheduler",
    "fifo": "FIFOScheduler",
    "freeze_thaw": "FIFOScheduler",
    "hyperband": "HyperBandScheduler",
    "median_stopping": "MedianStoppingRule",
    "pb2": "PopulationBasedTraining",
    "pbt": "PopulationBasedTraining",
    "resource_changing": "ResourceChangingScheduler",
}
SPACE = SearchSpace({"rate": Float(0.1, 1.0)})
each = pytest.mark.parametrize("name", KINDS)


def make(name, **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, space=SPACE, **settings)


@each
def test_a_scheduler_is_one_of_rays(name):
    from ray.tune import schedulers

    assert isinstance(make(name), getattr(schedulers, KINDS[name]))


@each
def test_a_scheduler_knows_its_metric_its_rungs_and_what_it_needs(name):
    made = make(name)
    assert made.metric == "val_loss"
    assert list(made.rungs) == sorted(set(made.rungs))
    assert bool(made.rungs) == (name in ("asha", "auto", "freeze_thaw", "hyperband", "bohb"))
    assert made.num_to_keep == (None if name in ("pbt", "pb2") else 2)
    assert made.fresh_actors == (name == "resource_changing")


def test_a_scheduler_around_another_has_that_ones_rungs_and_needs():
    assert make("resource_changing", base={"name": "asha", "max_t": 9}).rungs == (1, 3, 9)
    assert make("resource_changing", base={"name": "pbt"}).num_to_keep is None


def test_an_unknown_name_is_refused_with_those_known_and_a_guess():
    with pytest.raises(
        InvalidSettingsError,
        match=r"name: must be one of 'asha', 'auto', 'bohb', .*not 'asah'; did you mean 'asha'",
    ):
        make("asah")


def test_an_unknown_name_and_wrong_settings_are_told_at_once():
    with pytest.raises(InvalidSettingsError, match=r"(?s)2 errors.*'asah'.*grace_period: is 9"):
        make("asah", max_t=3, grace_period=9)


def test_the_setting_of_another_scheduler_is_refused():
    with pytest.raises(InvalidSettingsError, match="hard_stop: belongs to median_stopping, but"):
        make("asha", hard_stop=True)


def test_the_schedulers_load_neither_tensorflow_nor_optuna():
    code = (
        "import sys; from tune_tf.schedulers import scheduler;"
        "sys.exit(bool({'tensorflow', 'keras', 'optuna', 'mlflow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@each
def test_the_metric_given_to_tune_as_well_is_accepted(name):
    assert make(name).set_search_properties("val_loss", "min", stop={})


@each
def test_another_metric_given_to_tune_is_refused(name):
    with pytest.raises(
        InvalidSettingsError, match=r"metric='loss', mode=None.*metric='val_loss', mode='min'"
    ):
        make(name).set_search_properties("loss", None)
