"""Schedulers of sweeps that are killed and go on from what their record has."""

import random

import pytest
from killed_sweeps import SETTINGS, KilledSweep, make
from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from scripted_trials import ScriptedTrial

from tune_tf.errors import SweepConflictError
from tune_tf.schedulers.state import SchedulerResume

KINDS = {
    "each epoch saved": {"save_every": 1},
    "back to older checkpoints": {"save_every": 3},
    "newest damaged": {"save_every": 3, "damaged": True},
}
EXACT = [name for name in SETTINGS if name not in ("pb2", "freeze_thaw")]
"""Those whose decisions follow from what they have decided on, not from a model."""

slow_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def killed_at(step, name, *, damaged=False, **settings):
    """Kill a sweep after a step, most of them again a few steps later; run it to its end."""
    again = KilledSweep(name, **settings).run(step).resumed(damaged=damaged)
    if step % 5:
        again = again.run(step % 5).resumed()
    return again.run()


@slow_kinds
@pytest.mark.parametrize("slots", [3, 8])
@pytest.mark.parametrize("name", EXACT)
def test_a_sweep_that_was_killed_ends_as_if_it_had_not_been(name, slots, kind):
    whole = KilledSweep(name, slots=slots, save_every=kind["save_every"]).run()
    for step in range(1 + slots % 3, whole.num_steps, 3):
        assert killed_at(step, name, slots=slots, **kind).ends() == whole.ends(), step
    reasons = {reason for _, reason in whole.ends().values()}
    assert reasons >= {"completed"}
    assert "pruned" in reasons or name in ("fifo", "pbt") or slots == 3


@slow_kinds
def test_freeze_thaw_which_fits_its_model_anew_ends_all_trials_of_a_killed_sweep(kind):
    for step in range(2, 44, 6):
        again = killed_at(step, "freeze_thaw", slots=3, **kind)
        assert len(again.ends()) == 8, step
        assert (9, "completed") in again.ends().values()


@pytest.mark.filterwarnings("ignore")  # Ray calls SciPy as of old, with few points
def test_a_sweep_under_pb2_goes_on_with_what_its_process_has_seen():
    killed = KilledSweep("pb2", slots=4).run(30)
    again = killed.resumed().run()
    assert len(again.ends()) == 8
    first, resumed = killed.scheduler.data, again.scheduler.data
    assert resumed.head(len(first)).equals(first)
    assert len(resumed) > len(first) > 0


@pytest.mark.parametrize("name", ["HyperBandScheduler", "HyperBandForBOHB", "pbt"])
def test_a_trial_whose_end_no_hook_has_told_is_not_waited_for(name):
    killed = KilledSweep(name).run(12)
    lost = [trial for trial in killed.trials if not trial.is_finished()][-1]
    killed.trials.remove(lost)  # Tune has ended it as the sweep was
    again = killed.resumed().run()
    assert lost.trial_id not in again.ends()
    assert len(again.ends()) == 7


def test_a_trial_that_runs_again_to_where_it_was_stopped_is_stopped_again():
    sweep = KilledSweep("asha").run(2)
    told = []
    sweep.stop_trial = told.append  # the kill comes before its end
    sweep.run(3)
    (stopped,) = told[:1]
    again = sweep.resumed()
    trial = next(each for each in again.going_on if each.trial_id == stopped.trial_id)
    asked = [
        again.scheduler.on_trial_result(again, trial, {"val_loss": 0.0, "training_iteration": at})
        for at in (0, 1)
    ]
    assert asked == ["CONTINUE", "STOP"]


def test_a_trial_that_was_to_be_paused_is_paused_and_once_chosen_is_so_no_more():
    """What it had saved for the pause is lost, and it is killed while it repeats its epochs."""
    trial = ScriptedTrial("a")
    scheduler = make("fifo")
    scheduler.on_trial_add(None, trial)
    scheduler._decisions["a"] = 4, "PAUSE"
    scheduler._is_changed = True
    state = scheduler.changed_state()

    def resumed(state):
        again, found = make("fifo"), ScriptedTrial("a")
        again.resume(SchedulerResume(state, {"a": found}, {"a": 2}))
        return again, found

    again, found = resumed(state)
    assert found.status == Trial.PAUSED
    assert again.on_trial_result(None, found, {"training_iteration": 4}) == "CONTINUE"
    found.set_status(Trial.PENDING)
    again.on_trial_add(None, found)
    sweep = KilledSweep("fifo")
    sweep.trials = [found]
    assert again.choose_trial_to_run(sweep) is found
    assert resumed(again.changed_state())[1].status == Trial.PENDING


def test_a_state_is_recorded_when_it_has_changed_only():
    scheduler = make("asha")
    assert scheduler.changed_state() is None
    scheduler.on_trial_add(None, ScriptedTrial("a"))
    assert scheduler.changed_state()
    assert scheduler.changed_state() is None


@pytest.mark.parametrize("is_being_made", [False, True])
def test_a_donor_gives_the_newest_checkpoint_that_was_finished_from_where_it_is_now(is_being_made):
    random.seed(0)
    killed = KilledSweep("pbt").run(20)
    donor = next(trial for trial in killed.trials if trial.trial_id == "t1")
    state = killed.scheduler._trial_state[donor]
    if is_being_made:
        state.last_checkpoint = object()  # as a future
    killed.scheduler._is_changed = True
    killed.state = killed.scheduler.changed_state()
    again = killed.resumed()
    (found,) = (trial for trial in again.going_on if trial.trial_id == "t1")
    path = again.scheduler._trial_state[found].last_checkpoint.path
    expected = donor.checkpoint if is_being_made else state.last_checkpoint
    assert path == expected.path.replace("/storage", "/storage-moved")


def test_a_population_goes_on_from_the_checkpoints_that_are_there():
    scheduler, trial = make("pbt"), ScriptedTrial("a")
    scheduler.on_trial_add(KilledSweep("pbt"), trial)
    state = scheduler._trial_state[trial]
    state.last_train_time, state.last_perturbation_time, state.last_score = 6, 6, 0.5
    state.last_checkpoint = Checkpoint("/old/trial_00000/checkpoint_000005")
    again, found = make("pbt"), ScriptedTrial("a")
    state = scheduler.changed_state()
    again.resume(SchedulerResume(state, {"a": found}, {"a": 3}, checkpoint=lambda path: None))
    back = again._trial_state[found]
    assert (back.last_train_time, back.last_perturbation_time, back.last_score) == (3, 3, None)
    assert back.last_checkpoint is None


@pytest.mark.parametrize(
    ("changed", "name", "settings"),
    [
        (r"epochs=9.*cannot go on with.*epochs=27", "HyperBandScheduler", {"epochs": 27}),
        (r"by HyperBandScheduler.*cannot go on with HyperBandForBOHB", "HyperBandForBOHB", {}),
    ],
)
def test_a_state_of_another_scheduler_or_of_other_settings_is_refused(changed, name, settings):
    scheduler = make("HyperBandScheduler")
    scheduler.on_trial_add(None, ScriptedTrial("a"))
    with pytest.raises(SweepConflictError, match=changed):
        make(name, **settings).resume(SchedulerResume(scheduler.changed_state()))
