"""Trials that continue from another one's checkpoint are told by their tags."""

import inspect
from types import SimpleNamespace

import pytest
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.tune_internals.trial_state import (
    begin_segment,
    first_tag,
    forget_wait,
    restore_result,
    saved_iteration,
    to_training_result,
    train_trial,
    trial_number,
    trial_segment,
)


def test_ray_has_what_waiting_and_exchanged_trials_need(trial):
    assert callable(TuneController._schedule_trial_train)
    assert callable(TuneController._schedule_trial_save)
    for name in ("_cached_trial_decisions", "_queued_trial_decisions"):
        assert f"self.{name} = {{}}" in inspect.getsource(TuneController.__init__)
    manager = trial.run_metadata.checkpoint_manager
    manager.register_checkpoint(saved(3))
    assert [each.metrics["training_iteration"] for each in manager._checkpoint_results] == [3]
    assert manager._latest_checkpoint_result is manager.latest_checkpoint_result


def test_a_trial_is_not_trained_by_a_controller_that_cannot(trial):
    trained = []
    assert train_trial(SimpleNamespace(_schedule_trial_train=trained.append), trial)
    assert not train_trial(SimpleNamespace(), trial)
    assert trained == [trial]


@pytest.fixture
def trial():
    return Trial("scripted", stub=True, trial_id="a", experiment_tag="3_user=me@here.org")


def saved(iteration, trial_id="a"):
    metrics = {"training_iteration": iteration, "trial_id": trial_id, "loss": 0.5}
    return to_training_result(f"/tmp/checkpoint_{iteration}", None, metrics)


def test_a_choice_that_contains_an_at_sign_is_no_segment(trial):
    assert (trial_number(trial), trial_segment(trial)) == (2, 0)


def test_a_trial_begins_segment_after_segment_and_goes_back(trial):
    for segment in (1, 2, 12):
        begin_segment(trial, segment, saved(4, "b"), {"rate": 0.1})
        assert (trial_number(trial), trial_segment(trial)) == (2, segment)
        assert (saved_iteration(trial), trial.config) == (4, {"rate": 0.1})
    assert first_tag(trial.experiment_tag) == "3_user=me@here.org"
    begin_segment(trial, 0, None, {})
    assert (trial_segment(trial), saved_iteration(trial)) == (0, 0)
    assert trial.experiment_tag == "3_user=me@here.org"


def test_tune_s_state_has_the_checkpoint_that_a_segment_begins_with(trial):
    manager = trial.run_metadata.checkpoint_manager
    manager.register_checkpoint(saved(3))
    trial.run_metadata.get_json_state()  # Tune keeps that text until it is told of a change
    begin_segment(trial, 1, saved(4, "b"), {"rate": 0.1})
    kept = type(trial.run_metadata).from_json_state(trial.run_metadata.get_json_state())
    metrics = kept.checkpoint_manager.latest_checkpoint_result.metrics
    assert (metrics["training_iteration"], metrics["trial_id"]) == (4, "b")


def test_tune_forgets_that_a_trial_waits_but_no_other_decision(trial):
    kept = {"a": TrialScheduler.NOOP, "b": TrialScheduler.NOOP}
    queued = {"a": TrialScheduler.PAUSE}
    controller = SimpleNamespace(_cached_trial_decisions=kept, _queued_trial_decisions=queued)
    forget_wait(SimpleNamespace(_tune_controller=controller), trial)
    assert (kept, queued) == ({"b": TrialScheduler.NOOP}, {"a": TrialScheduler.PAUSE})
    forget_wait(SimpleNamespace(), trial)  # another Ray may have none


def test_a_checkpoint_newer_than_the_last_result_restores_it(trial):
    trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved(2)
    restore_result(trial)
    assert trial.last_result["training_iteration"] == 2


def test_another_trial_s_checkpoint_restores_no_result(trial):
    trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved(2, "b")
    restore_result(trial)
    assert not trial.run_metadata.last_result
