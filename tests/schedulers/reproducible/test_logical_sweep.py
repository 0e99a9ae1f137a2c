"""Sweeps in logical time: what they decide follows from results alone, not from their order."""

import math
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from logical_trials import CASES, IDS, MAX_T, Position, Workers, make_sweep
from ray.tune.schedulers import TrialScheduler

from tune_tf.outcome import Outcome

pytestmark = pytest.mark.filterwarnings(
    "ignore:scipy.optimize. The `disp`:DeprecationWarning",  # of the process behind pb2
    "ignore:Constraints have been set",  # cmaes ignores them
)
HERE = Path(__file__).parent
RUN_ALL = """
from logical_trials import CASES, Workers, make_sweep
for case in CASES:
    if case[0]["name"] != "pb2":
        print(Workers(make_sweep(*case)).run().fingerprint)
"""


def outcomes(sweep):
    return [sweep.assignment(number).outcome for number in range(sweep.num_created)]


def after(num_results):
    """Return a function that ends a sweep with its ``num_results``th result."""
    numbers = count(1)
    return lambda *_: "enough" if next(numbers) == num_results else None


class Runs:
    """Each case once with results as they are due, and once with eight workers in random order."""

    def __init__(self):
        self._ideal, self._disturbed = {}, {}
        self.decisions = {}
        """What the scheduler was told, what it answered, and whether it changed other trials."""

    def ideal(self, case):
        if str(case) not in self._ideal:
            self._ideal[str(case)] = Workers(make_sweep(*case)).run()
        return self._ideal[str(case)]

    def disturbed(self, case):
        if str(case) not in self._disturbed:
            sweep = make_sweep(*case)
            seen = self.decisions[str(case)] = []
            sweep.scheduler.on_trial_result = recording(sweep.scheduler.on_trial_result, seen)
            self._disturbed[str(case)] = Workers(sweep, 8, 2).run()
        return self._disturbed[str(case)]


def recording(decide, seen):
    def on_trial_result(controller, trial, result):
        others = {each: each.status for each in controller.get_trials() if each is not trial}
        decision = decide(controller, trial, result)
        seen.append((result, decision, {each: each.status for each in others} != others))
        return decision

    return on_trial_result


@pytest.fixture(scope="module")
def runs():
    return Runs()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_decisions_do_not_depend_on_the_order_of_results_nor_on_the_workers(case, runs):
    assert runs.disturbed(case).events == runs.ideal(case).events
    assert runs.disturbed(case).fingerprint == runs.ideal(case).fingerprint


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_some_trial_may_train_until_all_have_ended(case, runs):
    sweep = runs.disturbed(case)
    assert sweep.has_all_trials
    assert None not in outcomes(sweep)
    assert sweep.num_created == (12 if case[1] not in ("grid", "BruteForceSampler") else 6)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_trial_trains_past_a_decision_on_it(case, runs):
    sweep = runs.disturbed(case)
    for position, metrics in sweep.results.items():
        failed = not metrics
        assert position.iteration <= sweep.reached(position.trial, position.segment) + failed


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_was_known_before_is_decided_at_once_as_before(case, runs):
    again = make_sweep(*case)
    for position, metrics in reversed(runs.ideal(case).results.items()):
        again.report(position, metrics)
    again.advance()
    assert again.fingerprint == runs.ideal(case).fingerprint


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_scheduler_changes_nothing_at_an_iteration_that_is_no_decision(case, runs):
    scheduler = runs.disturbed(case).scheduler
    for result, decision, changed in runs.decisions[str(case)]:
        iteration = result["training_iteration"]
        assert iteration <= scheduler.next_decision(iteration) <= MAX_T
        if scheduler.next_decision(iteration) != iteration and not math.isnan(result["accuracy"]):
            assert (decision, changed) == (TrialScheduler.CONTINUE, False)


@pytest.mark.parametrize("case", [each for each in CASES if each[0]["name"] in ("pbt", "pb2")])
def test_exploited_trials_begin_in_a_state_of_the_donor_that_was_reported(case, runs):
    sweep, num_starts = runs.disturbed(case), 0
    for number in range(sweep.num_created):
        for segment in range(1, sweep.assignment(number).segment + 1):
            start = sweep.start(number, segment)
            num_starts += 1
            assert start in sweep.results
            assert start in sweep.needed_positions()
            own = [
                each.iteration
                for each in sweep.results
                if (each.trial, each.segment) == (number, segment)
            ]
            assert start.trial != number
            assert min(own, default=start.iteration + 1) == start.iteration + 1
    assert num_starts


@pytest.mark.parametrize("case", CASES[::3], ids=IDS[::3])
@pytest.mark.parametrize("num_results", [1, 8])
def test_an_end_in_logical_time_is_the_same_whatever_has_arrived(case, num_results):
    prints = set()
    for num, order in ((1, None), (3, 1), (8, 2)):
        sweep = Workers(make_sweep(*case, end_reason=after(num_results)), num, order).run()
        assert sweep.end_reason == "enough"
        prints.add(sweep.fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize("num_slots", [1, 20])
def test_one_slot_or_more_slots_than_trials_are_enough(num_slots):
    for case in CASES[4::3]:
        sweep = Workers(make_sweep(*case, num_slots=num_slots, num_samples=3), 2, 1).run()
        assert len(outcomes(sweep)) == 3
        assert None not in outcomes(sweep)


def test_several_objectives_are_sampled_alike_in_any_order():
    case = {"name": "asha"}, "nsga2"
    one, other = (
        Workers(make_sweep(*case, several=True), num, order).run()
        for num, order in ((1, None), (8, 2))
    )
    assert one.fingerprint == other.fingerprint


def test_a_trial_that_fails_or_diverges_at_once_is_decided():
    sweep = make_sweep({"name": "asha"}, "random", num_samples=2)
    sweep.advance()
    sweep.report(Position(0, 0, 1), {})
    sweep.report(Position(1, 0, 1), {"accuracy": float("nan"), "size": 1})
    sweep.advance()
    assert outcomes(sweep) == [Outcome.ERROR, Outcome.DIVERGED]


def test_all_samplers_and_schedulers_decide_alike_with_another_order_of_sets():
    prints = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN_ALL],
            cwd=HERE,
            env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1
    assert len(prints.pop().split()) == sum(case[0]["name"] != "pb2" for case in CASES)
