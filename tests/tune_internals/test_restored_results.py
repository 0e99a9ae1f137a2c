"""Numbers of trials, and last results that only a checkpoint holds."""

import pytest
from ray.tune.experiment import Trial

from tune_tf.tune_internals.trial_state import restore_result, to_training_result, trial_number


@pytest.fixture
def trial():
    return Trial("scripted", stub=True, trial_id="a", experiment_tag="3_user=me@here.org")


def saved(iteration, trial_id="a"):
    metrics = {"training_iteration": iteration, "trial_id": trial_id, "loss": 0.5}
    return to_training_result(f"/tmp/checkpoint_{iteration}", None, metrics)


def test_a_choice_that_contains_an_at_sign_leaves_the_number(trial):
    assert trial_number(trial) == 2


def test_a_checkpoint_newer_than_the_last_result_restores_it(trial):
    trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved(2)
    restore_result(trial)
    assert trial.last_result["training_iteration"] == 2


def test_another_trial_s_checkpoint_restores_no_result(trial):
    trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved(2, "b")
    restore_result(trial)
    assert not trial.run_metadata.last_result
