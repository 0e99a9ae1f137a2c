"""Trials of a reproducible sweep that a resume restores."""

from types import SimpleNamespace

import pytest
from logical_trials import make_sweep
from ray.tune.experiment import Trial

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.schedulers.logical_sweep import Position
from tune_tf.schedulers.reproducible import ReproducibleScheduler
from tune_tf.trainables.memory.oom_retries import RetryResources
from tune_tf.tune_internals.trial_state import to_training_result


@pytest.fixture
def scheduler(tmp_path):
    sweep = make_sweep({"name": "fifo"}, "random")
    return ReproducibleScheduler(sweep, num_workers=1, file=tmp_path / "results.jsonl")


def restored(scheduler, **changes):
    """Return the first trial as Tune restores it."""
    config = {**scheduler.propose(None), **changes}
    return Trial("scripted", stub=True, trial_id="a", experiment_tag="1_", config=config)


def test_a_restored_trial_with_other_parameters_is_refused(scheduler):
    scheduler.on_trial_add(None, restored(scheduler, width=999))
    controller = SimpleNamespace(get_live_trials=list)
    with pytest.raises(SweepConflictError, match=r"trial 0 has other parameters.* width 999 and"):
        scheduler.choose_trial_to_run(controller)


def test_a_restored_trial_goes_on(scheduler):
    trial = restored(scheduler)
    scheduler.on_trial_add(None, trial)
    assert scheduler.choose_trial_to_run(SimpleNamespace(get_live_trials=lambda: [trial])) is trial


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ({"done": True}, Outcome.COMPLETED),
        ({"done": True, "stop_reason": "diverged"}, Outcome.DIVERGED),
        ({}, Outcome.OUT_OF_BUDGET),
    ],
)
def test_a_trial_that_had_ended_after_the_sweep_in_logical_time_ends_in_the_same_way(
    tmp_path, last, outcome
):
    ends = {"end_reason": lambda *_: "the target is reached"}
    sweep = make_sweep({"name": "asha"}, "random", num_slots=2, **ends)
    for number in (0, 1):
        sweep.report(Position(number, 0, 1), {"accuracy": 0.5, "size": 8.0, **last})
    scheduler = ReproducibleScheduler(sweep, num_workers=1, file=tmp_path / "results.jsonl")
    assert scheduler.end_reason == "the target is reached"
    config = sweep.config(1)
    trial = Trial("scripted", stub=True, trial_id="b", experiment_tag="2_", config=config)
    metrics = {"training_iteration": 1, "trial_id": "b", "accuracy": 0.5, "size": 8.0}
    manager = trial.run_metadata.checkpoint_manager
    manager._latest_checkpoint_result = to_training_result("/nowhere", None, metrics)
    scheduler.on_trial_add(None, trial)
    stopped = []
    scheduler.choose_trial_to_run(
        SimpleNamespace(get_live_trials=lambda: [trial], stop_trial=stopped.append)
    )
    assert stopped == [trial]
    assert scheduler.decided_end("b") == (outcome, None)


def test_a_trial_that_ran_out_of_memory_is_named_as_not_comparable(scheduler):
    trial = restored(scheduler)
    trial.update_resources(RetryResources([{"CPU": 1.0}], micro_batches=2))
    result = {"training_iteration": 1, "trial_id": "a", "accuracy": 0.5, "size": 8.0}
    scheduler.on_trial_add(None, trial)
    scheduler.on_trial_result(SimpleNamespace(), trial, {**result, "should_checkpoint": True})
    (reason,) = scheduler.fingerprint.reasons
    assert reason == "trial 0 ran out of memory and went on with other resources"


def test_a_trial_that_lost_its_process_waits_for_its_turn(scheduler):
    trial = restored(scheduler)
    controller = SimpleNamespace(_set_trial_status=Trial.set_status)
    scheduler.on_trial_add(controller, trial)
    trial.set_status(Trial.PENDING)  # as Tune does where it starts a lost one again
    scheduler.on_trial_add(controller, trial)
    assert trial.status == Trial.PAUSED


@pytest.mark.parametrize("ends", [True, False])
def test_a_checkpoint_newer_than_the_last_line_tells_that_its_trial_ended(scheduler, ends):
    trial = restored(scheduler)
    reported = {"accuracy": 0.5, "size": 8.0, "done": ends}
    metrics = {"training_iteration": 1, "trial_id": "a", **reported}
    manager = trial.run_metadata.checkpoint_manager
    manager._latest_checkpoint_result = to_training_result("/nowhere", None, metrics)
    scheduler.on_trial_add(None, trial)
    (known,) = scheduler.sweep.results.values()
    assert (known["accuracy"], known.get("done", False)) == (0.5, ends)
    assert (scheduler.sweep.assignment(0).outcome is Outcome.COMPLETED) == ends
