"""ASHA with promotion, driven by hand with Tune's calls."""

import math

import numpy as np
import pytest
from promotion_slots import assert_every_iteration_once, in_order, make, reversed_order, slots

from tune_tf.schedulers.rungs import rung_iterations


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


def test_the_interrupted_trial_at_the_highest_rung_restarts_first():
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


def test_promotions_wait_for_tune_if_statuses_cannot_be_set():
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
