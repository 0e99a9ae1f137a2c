"""Schedulers that are saved, killed and restored with new trial objects."""

import math
import random

import pytest

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LOSS = Objective("val_loss", "min")
SPACE = SearchSpace({"rate": Float(0.1, 1.0)})
SETTINGS = {
    "fifo": {},
    "asha": {},
    "HyperBandScheduler": {},
    "HyperBandForBOHB": {},
    "MedianStoppingRule": {},
    "pbt": {"perturbation_interval": 2},
    "pb2": {"perturbation_interval": 2},
}


def make(name, **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, space=SPACE, **{"epochs": 9, **SETTINGS[name], **settings})


def controller_of(scheduler, count=8, slots=8):
    from scripted_trials import Controller

    curves = [lambda at, i=i: math.nan if i == 3 and at > 4 else i + 1 / at for i in range(count)]
    configs = [{"rate": 0.1 * (i + 1)} for i in range(count)]
    return Controller(scheduler, curves, slots=slots, configs=configs)


def killed_and_resumed(controller, path, made, retried=()):
    """Save as the controller stands, make everything anew as Tune does, and return that."""
    from scripted_trials import Controller, ScriptedTrial

    controller.scheduler.save(path)
    made.restore(path)
    again = Controller(made, [], slots=controller.slots)
    again.curves = controller.curves
    again.waiting = controller.waiting
    again.reached = dict(controller.reached)
    for old in reversed(controller.trials):
        trial = ScriptedTrial(old.trial_id, old.config, old.stopping_criterion)
        trial.set_experiment_tag(old.experiment_tag)
        trial.update_last_result(dict(old.last_result))
        manager = old.run_metadata.checkpoint_manager
        trial.run_metadata.checkpoint_manager._latest_checkpoint_result = (
            manager._latest_checkpoint_result
        )
        ended = old.is_finished() and old.trial_id not in retried
        trial.set_status(old.status if ended else "PENDING")
        again.add(trial)
        if trial.is_finished():
            again.live.discard(trial)
    return again


def at_iteration(iteration):
    return lambda it: max(it.reached.values(), default=0) == iteration


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "pb2"])
@pytest.mark.parametrize("iteration", [1, 3, 5, 9])
@pytest.mark.parametrize("slots", [3, 8])
def test_a_sweep_killed_at_any_point_ends_all_its_trials(name, iteration, slots, tmp_path):
    random.seed(0)
    controller = controller_of(make(name), slots=slots).run(until=at_iteration(iteration))
    again = killed_and_resumed(controller, tmp_path / "scheduler", make(name)).run()
    ends = again.ends()
    assert {trial.status for trial in again.trials} == {"TERMINATED"}
    assert len(ends) == 8
    assert {reason for _, reason in ends.values()} <= {"completed", "pruned", "diverged"}


@pytest.mark.filterwarnings("ignore")  # Ray calls SciPy as of old, with few points
def test_a_sweep_under_pb2_goes_on_with_what_its_process_has_seen(tmp_path):
    controller = controller_of(make("pb2"), count=4).run(until=at_iteration(4))
    again = killed_and_resumed(controller, tmp_path / "scheduler", make("pb2")).run()
    assert {trial.status for trial in again.trials} == {"TERMINATED"}
    first, resumed = controller.scheduler.data, again.scheduler.data
    assert resumed.head(len(first)).equals(first)
    assert len(resumed) > len(first) > 0


@pytest.mark.parametrize(
    "name", ["asha", "HyperBandScheduler", "HyperBandForBOHB", "MedianStoppingRule"]
)
@pytest.mark.parametrize("iteration", [1, 2, 4, 6])
def test_a_sweep_that_was_killed_ends_as_if_it_had_not_been(name, iteration, tmp_path):
    whole = controller_of(make(name)).run()
    controller = controller_of(make(name)).run(until=at_iteration(iteration))
    again = killed_and_resumed(controller, tmp_path / "scheduler", make(name)).run()
    assert again.ends() == whole.ends()
    assert {reason for _, reason in whole.ends().values()} >= {"completed", "pruned"}


@pytest.mark.parametrize("name", ["HyperBandScheduler", "pbt"])
def test_a_trial_that_tune_does_not_bring_back_is_not_waited_for(name, tmp_path):
    controller = controller_of(make(name))
    controller.run(until=at_iteration(2))
    del controller.trials[5]
    made = make(name)
    again = killed_and_resumed(controller, tmp_path / "scheduler", made).run()
    assert len(again.trials) == 7
    assert {trial.status for trial in again.trials} == {"TERMINATED"}


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "pb2"])
def test_a_trial_that_had_failed_and_is_tried_again_is_taken_up(name, tmp_path):
    controller = controller_of(make(name), count=3)
    controller.run(until=at_iteration(2))
    failed = controller.trials[1]
    controller.scheduler.on_trial_error(controller, failed)
    failed.set_status("ERROR")
    again = killed_and_resumed(controller, tmp_path / "scheduler", make(name), retried=["t1"])
    assert {trial.status for trial in again.run().trials} == {"TERMINATED"}


def test_a_trial_that_runs_again_to_where_it_was_stopped_is_stopped_again(tmp_path):
    controller = controller_of(make("asha")).run(until=at_iteration(1))
    again = killed_and_resumed(controller, tmp_path / "scheduler", make("asha"))
    pruned = next(trial for trial in again.trials if trial.is_finished())
    asked = [
        again.scheduler.on_trial_result(again, pruned, {"val_loss": 0.0, "training_iteration": at})
        for at in (0, 1)
    ]
    assert asked == ["CONTINUE", "STOP"]


def test_a_donor_whose_checkpoint_was_being_made_gives_the_one_before(tmp_path):
    from ray.tune import Checkpoint

    random.seed(0)
    scheduler = make("pbt")
    controller = controller_of(scheduler).run(until=at_iteration(2))
    donor = controller.trials[0]
    before = Checkpoint(str(tmp_path))
    controller.pause_trial(donor)
    donor.latest_checkpoint_result.checkpoint = before
    scheduler._trial_state[donor].last_checkpoint = object()  # as a future
    again = killed_and_resumed(controller, tmp_path / "scheduler", make("pbt"))
    again.scheduler.choose_trial_to_run(again)
    (found,) = [t for t in again.trials if t.trial_id == donor.trial_id]
    assert again.scheduler._trial_state[found].last_checkpoint.path == str(tmp_path)


def test_a_state_of_other_settings_is_refused(tmp_path):
    make("asha").save(tmp_path / "scheduler")
    with pytest.raises(SweepConflictError, match=r"epochs=9.*cannot be restored as.*epochs=27"):
        make("asha", epochs=27).restore(tmp_path / "scheduler")


def test_a_state_of_another_scheduler_is_refused(tmp_path):
    make("HyperBandScheduler").save(tmp_path / "scheduler")
    with pytest.raises(SweepConflictError, match=r"by HyperBandScheduler.*as HyperBandForBOHB"):
        make("HyperBandForBOHB").restore(tmp_path / "scheduler")
