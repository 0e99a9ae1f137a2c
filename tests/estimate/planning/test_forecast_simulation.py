"""Sweeps in virtual time under every scheduler."""

import pytest
from measured_trials import SPACE

from tune_tf.config import SCHEDULERS, SweepConfig
from tune_tf.estimate.planning.schedule_model import segments_of
from tune_tf.estimate.planning.simulated_sweeps import simulate_sweeps, synthetic_problem
from tune_tf.objective import Objective


def config_of(name, num_samples=9):
    return SweepConfig.from_dict(
        {
            "name": "small",
            "workload": "models:Mine",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": SPACE.to_dict(),
            "searcher": {"sampler": "random"},
            "scheduler": {"name": name, "max_t": 9},
            "budget": {"num_samples": num_samples},
        }
    )


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_all_iterations_of_a_simulated_sweep_are_in_a_segment(name):
    runs = simulate_sweeps(config_of(name), lambda config: 1.0, num_slots=3, num_seeds=1)
    (trace,) = runs.traces
    segments = segments_of(trace, lambda config: 1.0)
    assert {segment.trial for segment in segments} == {event.trial for event in trace.events}
    assert sum(segment.epochs for segment in segments) == trace.epochs > 0
    assert runs.growth == 1


def test_trials_that_run_to_their_end_have_one_segment_each():
    runs = simulate_sweeps(config_of("fifo"), lambda config: 1.0, num_slots=3, num_seeds=1)
    segments = segments_of(runs.traces[0], lambda config: 1.0)
    assert [segment.epochs for segment in segments] == [9] * 9


@pytest.mark.parametrize(("mode", "sign"), [("min", -1), ("max", 1)])
def test_made_up_curves_get_better_on_the_whole(mode, sign):
    problem = synthetic_problem(
        SPACE, Objective("score", mode), max_t=27, seed=1, cost_s=lambda config: 1.0
    )
    config = {"width": 16, "dropout": 0.3, "learning_rate": 0.01}
    assert sign * problem.value(config, 27) > sign * problem.value(config, 1)


def test_made_up_curves_differ_from_seed_to_seed():
    config = {"width": 16, "dropout": 0.3, "learning_rate": 0.01}
    values = {
        synthetic_problem(
            SPACE, Objective("loss", "min"), max_t=9, seed=seed, cost_s=lambda config: 1.0
        ).value(config, 9)
        for seed in range(5)
    }
    assert len(values) == 5
