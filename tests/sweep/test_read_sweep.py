"""What a sweep found, read from its folder, and its trials by name."""

import pytest

from tune_tf import SweepConfig
from tune_tf.errors import InvalidSettingsError, UnknownSweepError, UnknownTrialError
from tune_tf.folder import SweepFolder
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.read import read_sweep, trial_named
from tune_tf.sweep.retrain import retrain_trial

pytestmark = pytest.mark.ray  # loads Ray; none is started

CONFIG = SweepConfig.from_dict(
    {
        "name": "digits",
        "workload": "tune_tf.workloads.digits:DigitsMLP",
        "objective": {"metric": "val_loss", "mode": "min"},
        "space": {"width": {"choice": [8, 16]}},
        "budget": {"num_samples": 2},
    }
)


@pytest.fixture
def result(tmp_path):
    trials = [
        TrialResult(trial_id, number, {}, Outcome.COMPLETED)
        for number, trial_id in enumerate(("ab12cd34", "ab99ef00", "0123abcd"))
    ]
    return SweepResult("digits-1", tmp_path, CONFIG, tmp_path, tuple(trials))


@pytest.mark.parametrize(
    ("name", "number"),
    [("ab99ef00", 1), ("ab9", 1), ("1", 1), ("trial_00002", 2), ("0123", 2), ("0", 0)],
)
def test_a_trial_is_found_by_id_by_its_beginning_and_by_number(result, name, number):
    assert trial_named(result, name).number == number


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ab12cd35", "did you mean 'ab12cd34'"),
        ("7", r"has no trial '7'; there are 0 \(ab12cd34\), 1 \(ab99ef00\), 2"),
        ("ab", r"'ab' is the beginning of 2 trials' ids in digits-1: 0 \(ab12cd34\), 1"),
        ("", "has no trial ''"),
    ],
)
def test_a_trial_that_is_not_there_is_told_with_near_ones(result, name, told):
    with pytest.raises(UnknownTrialError, match=told):
        trial_named(result, name)


def test_a_sweep_that_has_only_begun_has_no_trials(tmp_path):
    config = CONFIG.model_copy(update={"storage_path": str(tmp_path)})
    folder = SweepFolder.create(config, tmp_path)
    assert read_sweep("digits", storage_path=tmp_path).trials == ()
    with pytest.raises(UnknownTrialError, match="has no trial '0'; none has been started"):
        trial_named(read_sweep(folder.path), "0")


def test_an_unknown_sweep_is_told(tmp_path):
    with pytest.raises(UnknownSweepError, match="there is no sweep 'digits'"):
        read_sweep("digits", storage_path=tmp_path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"on": "train+validaton"}, r"on must be one of .* did you mean 'train\+validation'"),
        ({"num_replicas": 0}, "num_replicas must be at least 1, not 0"),
        ({"num_epochs": -1}, "num_epochs must be at least 1, not -1"),
    ],
    ids=["misspelt rows", "no replicas", "negative epochs"],
)
def test_wrong_settings_of_a_final_model_are_told_first(given, told):
    with pytest.raises(InvalidSettingsError, match=told):
        retrain_trial("no-such-sweep", **given)
