"""What trials spend in slots, on times that are scripted."""

import pytest

from tune_tf.config import BudgetSettings
from tune_tf.estimate.planning.schedule_model import (
    Limits,
    Segment,
    extend_segments,
    segments_of,
    simulate_slots,
)
from tune_tf.estimate.planning.simulated_sweeps import PlannedResult, PlannedTrial, Trace
from tune_tf.objective import Objective
from tune_tf.resources import TrialResources


class ScriptedCosts:
    turnaround_s = 1.0
    trace_s = 10.0

    def epoch_s(self, config):
        return 2.0

    def structure(self, config):
        return config["structure"]


cost = ScriptedCosts()


def segment(trial, epochs, structure="a"):
    return Segment(trial, {"structure": structure}, epochs)


def test_trials_follow_each_other_in_the_slot_that_is_free_first():
    spent = simulate_slots([segment(0, 10), segment(1, 1), segment(2, 1)], cost, num_slots=2)
    # slot 0: 1 + 10 + 20; slot 1: 1 + 10 + 2, then 1 + 2 without a trace
    assert spent.wall_s == 31
    assert spent.trial_s == 31 + 13 + 3
    assert (spent.trials, spent.epochs) == (3, 12)


def test_a_structure_is_traced_once_in_each_process():
    one = simulate_slots([segment(number, 1) for number in range(4)], cost, num_slots=1)
    other = simulate_slots([segment(number, 1, number) for number in range(4)], cost, num_slots=1)
    assert one.wall_s == 10 + 4 * 3
    assert other.wall_s == 4 * 13
    assert (one.max_programs, other.max_programs) == (1, 4)


def test_what_shares_no_program_is_traced_for_each_trial():
    spent = simulate_slots([segment(0, 1, None), segment(1, 1, None)], cost, num_slots=1)
    assert spent.wall_s == 2 * 13


def test_fresh_processes_know_no_program():
    spent = simulate_slots([segment(0, 1), segment(1, 1)], cost, num_slots=1, reuses=False)
    assert spent.wall_s == 2 * 13


LIMITS = {
    "none": (Limits(), (3, 15), 43.0),
    "wall time": (Limits(max_wall_s=25.0), (2, 6), 25.0),
    "epochs": (Limits(max_epochs=7), (2, 7), 26.0),
    "seconds of all trials": (Limits(max_trial_s=35.0), (3, 11), 35.0),
}


@pytest.mark.parametrize(("limits", "counts", "wall_s"), LIMITS.values(), ids=LIMITS.keys())
def test_a_limit_ends_the_sweep_after_whole_epochs(limits, counts, wall_s):
    # In one slot: 11 + 10 s, then 1 + 10 s twice; 5 epochs each.
    spent = simulate_slots(
        [segment(number, 5) for number in range(3)], cost, num_slots=1, limits=limits
    )
    assert (spent.trials, spent.epochs) == counts
    assert spent.wall_s == wall_s


def test_the_time_budget_counts_from_the_start_of_the_sweep():
    budget = BudgetSettings(num_samples=3, time_budget_s=60.0)
    assert Limits.of(budget, TrialResources(), begun_s=15.0) == Limits(max_wall_s=45.0)
    assert Limits.of(BudgetSettings(num_samples=3), TrialResources()) == Limits()


@pytest.mark.parametrize(
    ("budget", "limits"),
    [
        ({"epochs": 40}, Limits(max_epochs=40)),
        ({"cpu_hours": 2}, Limits(max_trial_s=1800.0)),
        ({"gpu_hours": 1}, Limits(max_trial_s=7200.0)),
        ({"cpu_hours": 2, "gpu_hours": 1}, Limits(max_trial_s=1800.0)),
    ],
    ids=["epochs", "CPU-hours", "GPU-hours", "the shorter of two"],
)
def test_epochs_and_hours_of_devices_are_limits(budget, limits):
    settings = BudgetSettings(num_samples=3, **budget)
    assert Limits.of(settings, TrialResources(cpus=4, gpus=0.5)) == limits


def trace(events, num_trials):
    return Trace(
        Objective("loss", "min"),
        9,
        tuple(PlannedResult(*event, 0.0) for event in events),
        tuple(PlannedTrial(number, {}) for number in range(num_trials)),
    )


def test_a_trial_that_waited_has_two_segments():
    events = [(1.0, 0, 1), (2.1, 0, 2), (1.0, 1, 1), (9.0, 0, 3)]
    found = segments_of(trace(sorted(events), 2), lambda config: 1.0)
    assert [(it.trial, it.epochs) for it in found] == [(0, 2), (1, 1), (0, 1)]


def test_a_longer_sweep_goes_on_as_the_next_one_did():
    sweeps = [[segment(0, 1), segment(1, 2)], [segment(0, 3), segment(1, 4)]]
    found = extend_segments(sweeps, first=1, growth=1.5)
    assert [(it.trial, it.epochs) for it in found] == [(0, 3), (1, 4), (2, 1)]
