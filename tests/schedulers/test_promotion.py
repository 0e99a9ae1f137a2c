"""ASHA with promotion, driven by hand with Tune's calls."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE
from tune_tf.schedulers.rungs import rung_iterations


def make(max_t=9, grace_period=1, reduction_factor=3, mode="min"):
    from tune_tf.config.scheduler_settings import AshaSettings
    from tune_tf.schedulers.promotion import PromotionAshaScheduler

    settings = AshaSettings(
        max_t=max_t,
        grace_period=grace_period,
        reduction_factor=reduction_factor,
        type="promotion",
    )
    return PromotionAshaScheduler(Objective("loss", mode), settings)


def slots(curve, num_samples, *, scheduler=None, **options):
    from slots import Slots

    return Slots(scheduler or make(), curve, num_samples, **options)


def in_order(number, iteration):
    """The first trial is the best, and all fall alike."""
    return number + 1 / iteration


def reversed_order(number, iteration):
    """The last trial is the best."""
    return -number + 1 / iteration


def assert_every_iteration_once(swept):
    for number, (_, last) in swept.ends().items():
        steps = [step for which, step in swept.reports if which == number]
        assert steps == list(range(1, (last or 0) + 1)), f"trial {number} did {steps}"


class Paper:
    """Algorithm 2 of https://arxiv.org/abs/1810.05934; a job is a trial and where it starts."""

    def __init__(self, iterations, factor, num_samples):
        self.iterations, self.factor, self.num_samples = iterations, factor, num_samples
        self.rungs = [{} for _ in iterations]
        self.promoted = [set() for _ in iterations]
        self.num_new = 0

    def run(self, curve, num_slots):
        """Return the jobs that are started; one that follows on itself is none."""
        jobs, running = [], []
        while True:
            while len(running) < num_slots and (job := self.get_job()) is not None:
                number, rung = job
                start = self.iterations[rung - 1] if rung else 0
                running.append([number, rung, start])
                jobs.append((number, start))
            if not running:
                return jobs
            number, rung, iteration = running.pop(0)
            if iteration + 1 < self.iterations[rung]:
                running.append([number, rung, iteration + 1])
                continue
            self.rungs[rung][number] = curve(number, iteration + 1)
            job = self.get_job()
            if job is not None:
                running.append([job[0], job[1], self.iterations[job[1] - 1] if job[1] else 0])
                if job[0] != number:
                    jobs.append((job[0], running[-1][2]))

    def get_job(self):
        for k in reversed(range(len(self.rungs) - 1)):
            ranked = sorted(self.rungs[k], key=lambda number: self.rungs[k][number])
            top = ranked[: int(len(ranked) / self.factor)]
            for number in top:
                if number not in self.promoted[k]:
                    self.promoted[k].add(number)
                    return number, k + 1
        if self.num_new == self.num_samples:
            return None
        self.num_new += 1
        return self.num_new - 1, 0


@pytest.mark.parametrize("limits", [(9, 1, 3), (27, 1, 3), (20, 2, 2), (16, 1, 4), (6, 1, 1.5)])
@pytest.mark.parametrize("num_slots", [1, 3, 8])
def test_promotions_are_those_of_the_paper(limits, num_slots):
    max_t, grace_period, factor = limits
    losses = np.random.default_rng(num_slots).normal(size=(60, max_t + 1))

    def curve(number, iteration):
        return float(losses[number, iteration])

    swept = slots(curve, 60, scheduler=make(*limits), num_slots=num_slots)
    swept.run()
    paper = Paper(rung_iterations(grace_period, factor, max_t), factor, 60)
    assert swept.jobs == paper.run(curve, num_slots)
    assert any(start for _, start in swept.jobs), "nothing was promoted"
    assert_every_iteration_once(swept)


@pytest.mark.parametrize("num_slots", [1, 2, 4])
@pytest.mark.parametrize("num_samples", [1, 2, 3, 12, 40])
@pytest.mark.parametrize("curve", [in_order, reversed_order])
def test_every_trial_ends_completed_at_the_limit_or_pruned_before(curve, num_samples, num_slots):
    swept = slots(curve, num_samples, num_slots=num_slots)
    swept.run()
    ends = swept.ends()
    assert len(ends) == num_samples
    assert all(trial.status == "TERMINATED" for trial in swept.trials)
    completed = {last for reason, last in ends.values() if reason == "completed"}
    pruned = {last for reason, last in ends.values() if reason == "pruned"}
    assert {reason for reason, _ in ends.values()} <= {"completed", "pruned"}
    assert completed <= {9}
    assert pruned <= {1, 3}
    assert_every_iteration_once(swept)


def test_of_nine_equal_slots_one_trial_is_completed():
    swept = slots(in_order, 9, num_slots=9)
    swept.run()
    ends = swept.ends()
    assert ends.pop(0) == ("completed", 9)
    assert sorted(ends.values()) == [("pruned", 1)] * 6 + [("pruned", 3)] * 2


def test_a_trial_that_is_promotable_at_once_goes_on_without_a_pause():
    swept = slots(reversed_order, 3)
    swept.run()
    assert swept.jobs == [(0, 0), (1, 0), (2, 0)]
    assert swept.reports[2:] == [(2, 1), (2, 2), (2, 3)]


def test_the_largest_value_goes_on_where_the_objective_is_to_be_large():
    swept = slots(in_order, 3, scheduler=make(mode="max"))
    swept.run()
    assert swept.ends() == {0: ("pruned", 1), 1: ("pruned", 1), 2: ("pruned", 3)}


def test_a_trial_at_a_higher_rung_goes_first():
    swept = slots(in_order, 12, num_slots=9)
    swept.fill()
    for trial in list(swept.running):
        swept.step(trial)
    chosen = swept.scheduler.choose_trial_to_run(swept)
    assert (chosen.trial_id, chosen.status) == ("0", "PENDING")


def test_of_trials_that_were_interrupted_the_one_at_the_highest_rung_goes_first():
    swept = slots(reversed_order, 4, num_slots=4)
    swept.fill()
    first, *others = swept.trials
    for trial in others:
        swept.step(trial)  # the last of them goes on
    for trial in (first, others[-1]):
        swept.fail(trial, retry=True)
    assert swept.scheduler.choose_trial_to_run(swept) is others[-1]


def test_a_promotion_takes_the_slot_before_the_searcher_is_asked():
    swept = slots(in_order, 12, num_slots=2)
    swept.fill()
    for _ in range(2):
        swept.step(swept.running[0])
        swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["2", "3"]
    swept.step(swept.running[0])
    assert not swept.propose(), "the slot is taken"
    swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["3", "0"]
    assert len(swept.trials) == 4


def test_a_promotion_takes_the_slot_of_a_trial_that_ends_by_itself():
    swept = slots(in_order, 12)
    for _ in range(3):
        swept.fill()
        swept.running[0].stopping_criterion["training_iteration"] = len(swept.trials) == 3 or 9
        swept.step(swept.running[0])
    assert not swept.propose(), "the slot is taken"
    swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["0"]


def test_a_promotion_takes_the_slot_of_a_trial_that_diverges():
    swept = slots(in_order, 4)
    for _ in range(3):
        swept.fill()
        swept.step(swept.running[0])
    swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["0"]
    swept.step(swept.running[0], loss=math.nan)
    assert not swept.propose(), "the slot is taken"
    swept.fill()
    assert [trial.trial_id for trial in swept.running] == ["1"]


def test_without_a_way_to_change_statuses_promotions_wait_until_tune_asks():
    class Plain:
        def __init__(self, controller):
            self.get_trials, self.search_alg = controller.get_trials, controller.search_alg

    swept = slots(in_order, 3, num_slots=3)
    swept.fill()
    plain = Plain(swept)

    def report(trial, iteration, loss):
        result = {"loss": loss, "training_iteration": iteration}
        return swept.scheduler.on_trial_result(plain, trial, result)

    for trial in swept.trials:
        assert report(trial, 1, in_order(int(trial.trial_id), 1)) == "PAUSE"
        trial.set_status("PAUSED")
    first = swept.scheduler.choose_trial_to_run(plain)
    assert first.trial_id == "0"
    first.set_status("RUNNING")
    assert report(swept.add(3), 1, 0.0) == "CONTINUE"  # the best of all now
    assert report(first, 2, 0.5) == "CONTINUE"


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


def test_after_a_trial_was_stopped_for_a_new_one_others_give_up_their_places():
    losses = [0.2, 0.5, 0.3]
    swept = slots(lambda number, _: losses[number], 3, limit=2)
    for _ in range(2):
        swept.fill()
        swept.step(swept.running[0])
    swept.fill()
    assert [trial.status for trial in swept.trials] == ["PAUSED", "TERMINATED", "RUNNING"]
    swept.stop_trial(swept.trials[0])
    assert swept.step(swept.trials[2]) == "CONTINUE"


def test_for_a_searcher_that_is_held_back_for_a_while_no_trial_is_stopped():
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
def test_the_place_of_a_trial_that_fails_after_its_promotion_goes_to_the_next_best(how):
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
