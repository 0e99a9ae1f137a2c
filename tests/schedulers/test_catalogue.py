import subprocess
import sys

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LOSS = Objective("val_loss", "min")


KINDS = {
    "asha": "AsyncHyperBandScheduler",
    "auto": "FIFOScheduler",
    "fifo": "FIFOScheduler",
    "freeze_thaw": "FIFOScheduler",
    "pb2": "PopulationBasedTraining",
    "pbt": "PopulationBasedTraining",
    "ASHAScheduler": "ASHAScheduler",
    "AsyncHyperBandScheduler": "AsyncHyperBandScheduler",
    "HyperBandForBOHB": "HyperBandForBOHB",
    "HyperBandScheduler": "HyperBandScheduler",
    "MedianStoppingRule": "MedianStoppingRule",
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


def test_every_class_of_ray_that_needs_no_search_space_is_there_by_its_name():
    from tune_tf.config.scheduler_settings import ray_schedulers

    assert set(ray_schedulers()) == {name for name in KINDS if name[0].isupper()}


@each
def test_a_scheduler_knows_its_metric_its_rungs_and_what_it_needs(name):
    made = make(name)
    assert made.metric == "val_loss"
    assert list(made.rungs) == sorted(set(made.rungs))
    assert bool(made.rungs) == (name not in ("fifo", "pb2", "pbt", "MedianStoppingRule"))


def test_arguments_are_those_of_the_class():
    made = make("ASHAScheduler", epochs=20, grace_period=2, reduction_factor=2.5, brackets=2)
    assert made.rungs == (2, 5, 13)
    assert [at for at, _ in made._brackets[1]._rungs] == [12.5, 5.0]


REFUSED = {
    "unknown": (
        "asah",
        {},
        r"name: must be one of 'fifo', .*'MedianStoppingRule', not 'asah'; did you mean 'asha'",
    ),
    "a population": ("PopulationBasedTraining", {}, "name: must be .*'pbt'"),
    "own argument": ("asha", {"hard_stop": True}, "hard_stop: .*known keys are .*grace_period"),
    "Ray's argument": (
        "HyperBandScheduler",
        {"reduction_facto": 2, "brackets": 3},
        r"(?s)2 errors.*reduction_facto: .*did you mean 'reduction_factor'.*known keys are name, "
        r"epochs, reduction_factor; .*brackets: ",
    ),
    "what the objective says": ("MedianStoppingRule", {"metric": "loss"}, "metric: .*known keys"),
    "a bad value": (
        "HyperBandScheduler",
        {"reduction_factor": "x"},
        "HyperBandScheduler refuses its arguments: .*; correct max_t, reduction_factor",
    ),
}


@pytest.mark.parametrize(("name", "settings", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_what_can(name, settings, text):
    with pytest.raises(InvalidSettingsError, match=text):
        make(name, **settings)


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
