"""``freeze_thaw`` under concurrency limits, failures, stops from elsewhere and resumes."""

import math
import random

import pytest
from slots import assert_every_iteration_once
from test_freeze_thaw import Sweep, causes, make, noisy, smooth

from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.schedulers.state import SchedulerResume

ENDS = ("completed", "pruned", "diverged")


def advance(swept, num_steps):
    """Do so many iterations of whichever trials run first."""
    for _ in range(num_steps):
        swept.fill()
        swept.step(swept.running[0])
    return swept


def advance_until(swept, is_reached):
    while not is_reached(swept):
        advance(swept, 1)
        swept.fill()
    return swept


def in_state(swept, status):
    return [trial for trial in swept.trials if trial.status == status]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("num_slots", [1, 4])
def test_a_limit_that_counts_waiting_trials_makes_no_dead_lock(limit, num_slots):
    swept = Sweep(make(), noisy(5), 15, num_slots=num_slots, limit=limit)
    swept.run()
    swept.assert_ended(9)


@pytest.mark.parametrize("num_slots", [1, 3])
def test_waiting_trials_go_on_while_the_searcher_has_none_and_wait_for_it_then(num_slots):
    swept = advance(Sweep(make(), noisy(7), 20, num_slots=num_slots), 12)
    known, swept.propose = len(swept.trials), lambda: False
    for _ in range(9 * known):
        swept.fill()
        if swept.running:
            swept.step(swept.running[0])
    assert not swept.running
    assert len(swept.trials) == known
    assert {reason for reason, _ in swept.ends().values()} == {None, "completed"}
    del swept.propose
    swept.run()
    swept.assert_ended(9)


def test_no_waiting_trial_takes_the_slot_of_one_that_is_still_saved_before_the_searcher_is_asked():
    swept = Sweep(make(), smooth, 40)
    for _ in range(3):
        swept.fill()
        swept.step(swept.running[0])
    swept.fill()
    saved, result = swept.running[0], {"loss": 1.0, "training_iteration": 1}
    assert swept.scheduler.on_trial_result(swept, saved, dict(result)) == "PAUSE"
    assert swept.scheduler.choose_trial_to_run(swept) is None
    saved.update_last_result(result)
    swept.leave(saved, "PAUSED")
    swept.fill()
    assert swept.jobs == [(number, 0) for number in range(5)]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("iteration", [1, 2, 3, 9])
def test_trials_that_diverge_are_ended_and_others_go_on(value, iteration):
    def curve(number, step):
        return value if number % 3 == 1 and step == iteration else smooth(number, step)

    swept = Sweep(make(), curve, 20, num_slots=2)
    swept.run()
    swept.assert_ended(9, ENDS)
    ends = swept.ends()
    diverged = [number for number, (reason, _) in ends.items() if reason == "diverged"]
    assert {ends[number] for number in diverged} <= {("diverged", iteration)}
    assert len(diverged) == (7 if iteration == 1 else len(diverged))
    assert ("completed", 9) in ends.values()


@pytest.mark.parametrize("status", ["PAUSED", "PENDING", "RUNNING"])
def test_a_trial_that_somebody_else_stops_is_out_of_budget(status):
    swept = advance(Sweep(make(), noisy(10), 20, num_slots=2), 13)
    while not in_state(swept, status):
        swept.step(swept.running[0])
        if status != "PENDING":
            swept.fill()
    stopped = in_state(swept, status)[0]
    swept.stop_trial(stopped)
    swept.run()
    assert stopped.last_result.get(STOP_REASON) == "out_of_budget"
    assert STOP_CAUSE not in stopped.last_result
    swept.assert_ended(9, ("completed", "pruned", "out_of_budget"))


def test_trials_that_skip_iterations_are_paused_at_the_rung_that_they_passed():
    class Skipping(Sweep):
        def step(self, trial):
            """Report each second iteration only."""
            last = trial.last_result.get("training_iteration", 0)
            trial.run_metadata.last_result = {**trial.last_result, "training_iteration": last + 1}
            return super().step(trial)

    swept = Skipping(make(), noisy(11), 20, num_slots=2)
    swept.run()
    ends = set(swept.ends().values())
    assert {last for reason, last in ends if reason == "completed"} == {10}
    assert {last for reason, last in ends if reason == "pruned"} <= {2, 4}
    assert len(ends) > 1


@pytest.mark.parametrize("seed", range(8))
def test_a_sweep_in_which_everything_goes_wrong_ends(seed):
    rng = random.Random(seed)
    settings = {
        "epochs": rng.choice((2, 9, 20)),
        "max_paused": rng.choice((1, 3, 100)),
        "min_chance": rng.choice((0.0, 0.05, 1.0)),
        "mode": rng.choice(("min", "max")),
    }
    num_slots = rng.choice((1, 2, 4))
    swept = Sweep(make(**settings), noisy(seed), 15, num_slots=num_slots)
    for _ in range(2000):
        swept.fill()
        if not swept.running:
            break
        trial, mishap = rng.choice(swept.running), rng.random()
        if mishap < 0.04:
            swept.step(trial, math.nan)
        elif mishap < 0.12:
            swept.fail(trial, retry=mishap > 0.07)
        elif mishap < 0.16:
            swept.stop_trial(rng.choice([each for each in swept.trials if not each.is_finished()]))
        elif mishap < 0.2:
            swept = resumed(swept, settings)
        else:
            swept.step(trial)
        assert swept.most_active <= num_slots
        assert swept.most_paused <= settings["max_paused"]
    assert len(swept.trials) == 15
    assert all(trial.is_finished() for trial in swept.trials)
    assert_every_iteration_once(swept)


def resumed(killed, settings=None):
    """Return the sweep as it goes on: new trials with the old last results, paused ones first."""
    again = Sweep(make(**(settings or {})), killed.curve, killed.num_samples)
    again.num_slots = killed.num_slots
    old = sorted(killed.trials, key=lambda trial: int(trial.trial_id))
    again.trials = [again.make(int(each.trial_id), last_result=each.last_result) for each in old]
    for each, trial in zip(old, again.trials, strict=True):
        is_kept = each.is_finished() or each.status == "PAUSED"
        trial.set_status(each.status if is_kept else "PENDING")
    going_on = [trial for trial in again.trials if not trial.is_finished()]
    saved = {trial.trial_id: trial.last_result.get("training_iteration", 0) for trial in going_on}
    state = killed.scheduler.changed_state()
    again.scheduler.resume(SchedulerResume(state, {it.trial_id: it for it in going_on}, saved))
    for trial in sorted(going_on, key=lambda trial: trial.status != "PAUSED"):
        again.scheduler.on_trial_add(again, trial)
    again.jobs, again.reports = list(killed.jobs), list(killed.reports)
    return again


@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("num_steps", range(0, 60, 10))
def test_a_sweep_that_was_killed_goes_on(num_steps, num_slots):
    killed = advance(Sweep(make(), noisy(12), 20, num_slots=num_slots), num_steps)
    paused = [trial.trial_id for trial in in_state(killed, "PAUSED")]
    again = resumed(killed)
    assert [trial.trial_id for trial in in_state(again, "PAUSED")] == paused
    again.run()
    again.assert_ended(9)
    assert ("completed", 9) in again.ends().values()


def test_a_failed_trial_that_is_retried_counts_by_what_it_reports_then():
    swept = Sweep(make(epochs=3), smooth, 30, num_slots=2)
    advance_until(
        swept,
        lambda it: (
            ("completed", 3) in it.ends().values()
            and any(trial.last_result.get("training_iteration") == 2 for trial in it.running)
        ),
    )
    number = next(
        int(each.trial_id) for each in swept.running if each.last_result["training_iteration"] == 2
    )
    swept.fail(swept.trials[number], retry=True)
    swept.curve = lambda which, step: -5.0 if (which, step) == (number, 3) else smooth(which, step)
    swept.run()
    assert swept.ends()[number] == ("completed", 3)
    assert {best for best, _ in causes(swept)} == {-5.0}


def test_proposals_go_on_after_a_resume():
    killed = advance(Sweep(make(), smooth, 30, num_slots=2), 40)
    assert killed.scheduler.propose(killed) is not None
    again = resumed(killed)
    assert again.scheduler.propose(again)["x"] == pytest.approx(0.3, abs=0.3)
