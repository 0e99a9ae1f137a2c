"""Promotion under concurrency limits, failures, stops from elsewhere and resumes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from promotion_slots import assert_every_iteration_once, in_order, make, reversed_order, slots

from tune_tf.outcome import STOP_CAUSE


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_limit_that_counts_waiting_trials_makes_no_dead_lock(limit):
    swept = slots(reversed_order, 12, limit=limit)
    swept.run()
    assert len(swept.trials) == 12
    assert {reason for reason, _ in swept.ends().values()} == {"completed", "pruned"}
    assert_every_iteration_once(swept)


def test_where_a_limit_counts_waiting_trials_the_worst_is_stopped_first():
    swept = slots(lambda number, _: [0.2, 0.5, 0.3, 0.4][number], 4, limit=2)
    swept.fill()
    for _ in range(2):
        swept.step(swept.running[0])
        swept.fill()
    assert [trial.status for trial in swept.trials] == ["PAUSED", "TERMINATED", "RUNNING"]
    assert swept.ends()[1] == ("pruned", 1)


def test_a_trial_that_was_stopped_for_a_new_one_keeps_its_place():
    losses = [0.2, 0.5, 0.6, 0.7, 0.8, 0.9]
    swept = slots(lambda number, _: losses[number], 6, limit=2)
    swept.run()
    assert swept.ends() == {0: ("pruned", 3)} | dict.fromkeys(range(1, 6), ("pruned", 1))


def test_trials_continue_after_one_was_stopped_for_a_new_trial():
    losses = [0.2, 0.5, 0.3]
    swept = slots(lambda number, _: losses[number], 3, limit=2)
    for _ in range(2):
        swept.fill()
        swept.step(swept.running[0])
    swept.fill()
    assert [trial.status for trial in swept.trials] == ["PAUSED", "TERMINATED", "RUNNING"]
    swept.stop_trial(swept.trials[0])
    assert swept.step(swept.trials[2]) == "CONTINUE"


def test_no_trial_is_stopped_while_the_searcher_is_blocked():
    swept = slots(in_order, 5, limit=2)
    limiter = swept.search_alg.searcher
    swept.search_alg.searcher = SimpleNamespace(is_closed=True, searcher=limiter)
    swept.fill()
    for _ in range(2):
        swept.step(swept.running[0])
        swept.fill()
    assert [trial.status for trial in swept.trials] == ["PAUSED", "PAUSED"]
    swept.search_alg.searcher.is_closed = False
    swept.fill()
    assert [trial.status for trial in swept.trials] == ["PAUSED", "TERMINATED", "RUNNING"]


def test_a_searcher_that_is_late_stops_no_trial():
    swept = slots(in_order, 5, limit=5)
    swept.fill()
    swept.step(swept.running[0])
    for _ in range(3):
        assert swept.scheduler.choose_trial_to_run(swept) is None
    assert [trial.status for trial in swept.trials] == ["PAUSED"]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_trial_that_diverges_never_enters_a_rung(loss):
    swept = slots(lambda number, step: loss if number == 1 else in_order(number, step), 4)
    swept.run()
    assert swept.ends()[1] == ("diverged", 1)
    assert swept.trials[1].last_result[STOP_CAUSE] == f"loss is {loss} at iteration 1"
    assert "1: 3" in swept.scheduler.debug_string()
    assert swept.ends()[0] == ("pruned", 3)


@pytest.mark.parametrize("how", ["raises", "diverges"])
def test_the_place_of_a_promoted_trial_that_fails_goes_to_the_next_best(how):
    swept = slots(in_order, 3, num_slots=3)
    swept.fill()
    for trial in list(swept.running):
        swept.step(trial)
    swept.fill()
    [first] = swept.running
    assert first.trial_id == "0"
    swept.fail(first) if how == "raises" else swept.step(first, loss=math.nan)
    chosen = swept.scheduler.choose_trial_to_run(swept)
    assert (chosen.trial_id, chosen.status) == ("1", "PENDING")
    swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["1"]
    swept.run()
    assert swept.ends()[1] == ("pruned", 3)
    assert swept.ends()[2] == ("pruned", 1)


def test_a_trial_that_is_tried_again_keeps_its_place():
    swept = slots(in_order, 3, num_slots=3)
    swept.fill()
    for trial in list(swept.running):
        swept.step(trial)
    swept.fill()
    swept.fail(swept.running[0], retry=True)
    swept.run()
    assert swept.ends() == {0: ("pruned", 3), 1: ("pruned", 1), 2: ("pruned", 1)}


def test_a_sweep_all_of_whose_trials_fail_ends():
    swept = slots(in_order, 3)
    for _ in range(3):
        swept.fill()
        swept.fail(swept.running[0])
    swept.fill()
    assert [trial.status for trial in swept.trials] == ["ERROR"] * 3


def test_a_waiting_trial_that_somebody_else_stops_gives_up_its_place():
    swept = slots(in_order, 4, num_slots=2)
    swept.fill()
    for _ in range(2):
        swept.step(swept.running[0])
    swept.stop_trial(swept.trials[0])
    swept.run()
    assert swept.ends()[0] == ("out_of_budget", 1)
    assert swept.ends()[1] == ("pruned", 3)


def test_a_trial_that_ends_by_itself_at_a_rung_is_ranked_there():
    swept = slots(reversed_order, 3)
    swept.fill()
    first = swept.running[0]
    first.stopping_criterion["training_iteration"] = 1
    swept.run()
    assert swept.ends() == {0: ("completed", 1), 1: ("pruned", 1), 2: ("pruned", 3)}


def test_a_trial_ends_completed_at_max_t_although_tune_would_have_gone_on():
    swept = slots(reversed_order, 3, scheduler=make(max_t=3))
    swept.fill()
    for _ in range(2):
        swept.step(swept.running[0])
        swept.fill()
    swept.trials[2].stopping_criterion["training_iteration"] = 99
    swept.fill()
    decisions = [swept.step(swept.trials[2]) for _ in range(3)]
    assert decisions == ["CONTINUE", "CONTINUE", "STOP"]
    assert swept.ends()[2] == ("completed", 3)


def test_a_trial_that_somebody_else_paused_goes_on():
    swept = slots(in_order, 1)
    trial = swept.add(0)
    trial.set_status("PAUSED")
    assert swept.scheduler.choose_trial_to_run(swept) is trial


def test_rungs_are_told_ascending_with_max_t_as_the_last():
    assert make(max_t=20).rungs == (1, 3, 9, 20)


def test_results_are_not_buffered():
    assert not make().supports_buffered_results


def resumed(killed, path):
    """Return the sweep as Tune resumes it: new trials with the old last results, all pending."""
    from ray.tune.experiment import Trial

    again = slots(killed.curve, killed.num_samples, num_slots=killed.num_slots)
    again.scheduler.restore(path)
    for old in killed.trials:
        trial = Trial("trainable", stub=True, trial_id=old.trial_id)
        trial.run_metadata.last_result = dict(old.last_result)
        trial.set_status(old.status if old.is_finished() else "PENDING")
        again.scheduler.on_trial_add(again, trial)
        again.trials.append(trial)
    again.jobs, again.reports = list(killed.jobs), list(killed.reports)
    return again


@pytest.mark.parametrize("num_steps", range(0, 40, 3))
def test_a_sweep_that_was_killed_goes_on_as_if_it_was_not(num_steps, tmp_path):
    losses = np.random.default_rng(5).normal(size=(20, 10))

    def curve(number, iteration):
        return float(losses[number, iteration])

    whole = slots(curve, 20)
    whole.run()
    killed = slots(curve, 20)
    for _ in range(num_steps):
        killed.fill()
        killed.step(killed.running[0])
    killed.scheduler.save(tmp_path / "scheduler.pkl")
    again = resumed(killed, tmp_path / "scheduler.pkl")
    again.run()
    assert again.reports == whole.reports
    assert again.ends() == whole.ends()


def test_the_state_holds_no_trials(tmp_path):
    import pickle

    swept = slots(in_order, 4)
    swept.run()
    swept.scheduler.save(tmp_path / "scheduler.pkl")
    saved = pickle.loads((tmp_path / "scheduler.pkl").read_bytes())
    assert b"ray.tune.experiment" not in saved.state


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"name": "asha", "type": "promotion"}, "PromotionAshaScheduler"),
        ({"name": "asha", "type": "stopping"}, "AshaScheduler"),
        ({"name": "asha"}, "AshaScheduler"),
        ({"name": "pasha"}, "PashaScheduler"),
    ],
)
def test_it_can_be_asked_for_by_name(settings, kind):
    from slots import LOSS

    from tune_tf.schedulers import scheduler

    made = scheduler(**settings, objective=LOSS, max_t=9)
    assert type(made).__name__ == kind
    assert made.settings.max_t == 9
