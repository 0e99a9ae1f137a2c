"""The page for users of other tools names every setting of theirs that has a signature."""

import inspect

import pytest
from documented import ROOT
from ray import tune

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
OTHER = {"self", "kwargs", "local_dir", "failure_config", "checkpoint_config"}


def arguments_of(*callables):
    return {
        name
        for each in callables
        for name, parameter in inspect.signature(each).parameters.items()
        if not name.startswith("_") and parameter.default != "DEPRECATED"
    } - OTHER


def test_every_setting_of_ray_tune_is_named():
    kinds = (tune.TuneConfig, tune.RunConfig, tune.CheckpointConfig, tune.FailureConfig)
    assert [name for name in sorted(arguments_of(*kinds)) if name not in PAGE] == []


@pytest.mark.tf
def test_every_argument_of_the_tuners_of_keras_tuner_is_named():
    kt = pytest.importorskip("keras_tuner")
    tuners = (kt.Tuner, kt.RandomSearch, kt.Hyperband, kt.BayesianOptimization, kt.GridSearch)
    arguments = arguments_of(*(tuner.__init__ for tuner in tuners))
    assert [name for name in sorted(arguments) if name not in PAGE] == []
