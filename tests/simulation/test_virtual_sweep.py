"""Sweeps in virtual time."""

import random
import time

import numpy as np
import pytest
from optuna.samplers import RandomSampler

from tune_tf.errors import InvalidSettingsError
from tune_tf.simulation import SweepEndReason


@pytest.fixture
def searcher():
    from recording import Log, ScriptedSearcher

    return ScriptedSearcher(Log())


@pytest.fixture
def fifo():
    from ray.tune.schedulers import FIFOScheduler

    return FIFOScheduler()


def simulate(*args, **kwargs):
    from tune_tf.simulation import simulate

    return simulate(*args, **kwargs)


def test_trials_run_to_the_problems_limit(problem, searcher, fifo):
    trace = simulate(problem, searcher, fifo, num_samples=3)
    assert [(event.trial, event.iteration) for event in trace.events] == [
        (trial, iteration) for trial in range(3) for iteration in range(1, 10)
    ]
    assert trace.end is SweepEndReason.FINISHED
    assert {trial.status for trial in trace.trials} == {"TERMINATED"}


def test_the_budget_ends_a_sweep_at_that_epoch(problem, searcher, fifo):
    trace = simulate(problem, searcher, fifo, num_workers=4, budget_epochs=30)
    assert trace.epochs == 30
    assert trace.end is SweepEndReason.OUT_OF_BUDGET


def test_a_sweep_stops_at_a_full_run_that_is_good_enough(problem, searcher, fifo):
    trace = simulate(problem, searcher, fifo, budget_epochs=900, until=0.2)
    assert trace.end is SweepEndReason.FOUND
    assert trace.epochs == 18
    assert trace.trials[-1].config == {"x": 1}


@pytest.mark.parametrize("num_workers", [1, 4])
def test_as_many_trials_run_at_a_time_as_there_are_workers(problem, searcher, fifo, num_workers):
    trace = simulate(problem, searcher, fifo, num_workers=num_workers, num_samples=20)
    # An iteration takes ten seconds, give or take a tenth.
    assert trace.virtual_s == pytest.approx(20 * 9 * 10 / num_workers, rel=0.05)


def test_the_same_seed_gives_the_same_sweep(problem, fifo):
    from recording import Log, ScriptedSearcher

    same, again, other = (
        simulate(problem, ScriptedSearcher(Log()), fifo, num_workers=4, num_samples=9, seed=seed)
        for seed in (1, 1, 2)
    )
    assert same == again
    assert same != other


def test_the_process_wide_generators_are_left_as_they_were(problem, searcher, fifo):
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    simulate(problem, searcher, fifo, num_samples=1, seed=8)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002


@pytest.mark.parametrize(
    "scheduler", ["asynchyperband", "hyperband", "median_stopping_rule", "pbt"]
)
def test_rays_schedulers_bring_all_trials_to_an_end(problem, searcher, scheduler):
    from ray.tune.schedulers import create_scheduler

    more = {"hyperparam_mutations": {"x": [0, 1, 2, 3]}}
    made = create_scheduler(
        scheduler,
        metric="val_loss",
        mode="min",
        time_attr="training_iteration",
        **(more | {"perturbation_interval": 2} if scheduler == "pbt" else {}),
    )
    trace = simulate(problem, searcher, made, num_workers=3, num_samples=9)
    assert trace.end is SweepEndReason.FINISHED
    assert len(trace.trials) == 9


def test_a_trial_that_takes_up_another_one_goes_on_at_its_iteration(problem, searcher):
    from ray.tune.schedulers import PopulationBasedTraining

    pbt = PopulationBasedTraining(
        metric="val_loss",
        mode="min",
        perturbation_interval=3,
        hyperparam_mutations={"x": [0, 1, 2, 3]},
    )
    trace = simulate(problem, searcher, pbt, num_workers=4, num_samples=4)
    exploited = [trial for trial in trace.trials if trial.config["x"] != trial.number]
    assert exploited
    for trial in exploited:
        seen = [event.iteration for event in trace.events if event.trial == trial.number]
        assert seen[-1] == 9


def test_a_trial_that_is_paused_goes_on_where_it_was(problem, searcher):
    from ray.tune.schedulers import HyperBandScheduler

    hyperband = HyperBandScheduler(metric="val_loss", mode="min", max_t=9)
    trace = simulate(problem, searcher, hyperband, num_workers=2, num_samples=12)
    for trial in trace.trials:
        seen = [event.iteration for event in trace.events if event.trial == trial.number]
        assert seen == list(range(1, len(seen) + 1))


def test_a_sweep_in_which_nothing_can_go_on_is_stalled(problem, searcher):
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler

    class Pausing(FIFOScheduler):
        """Pauses each trial for ever."""

        def on_trial_result(self, tune_controller, trial, result):
            return TrialScheduler.PAUSE

        def choose_trial_to_run(self, tune_controller):
            return None

    trace = simulate(problem, searcher, Pausing(), num_workers=2, budget_epochs=100)
    assert trace.end is SweepEndReason.STALLED
    assert trace.epochs == 2
    assert {trial.status for trial in trace.trials} == {"PAUSED"}


def test_our_searcher_takes_the_simulation_for_tune():
    """It finds the scheduler's rungs in the controller, and asks for more while trials pause."""
    from tune_tf.objective import Objective
    from tune_tf.schedulers import scheduler
    from tune_tf.searchers import OptunaSearcher
    from tune_tf.simulation import make_problem
    from tune_tf.tune_internals import controller

    seen = set()

    class Looking(OptunaSearcher):
        """Notes what it sees of Tune at each proposal."""

        def suggest(self, trial_id):
            seen.add(controller.rungs())
            return super().suggest(trial_id)

    objective = Objective("val_loss", "min")
    simulate(
        make_problem("branin", max_t=9),
        Looking(make_problem("branin").space, objective, "random", seed=1),
        scheduler("asha", objective, max_t=9),
        num_workers=2,
        num_samples=3,
    )
    assert seen == {(1, 3, 9)}


def test_trials_paused_in_a_bracket_do_not_block_proposals(problem):
    from tune_tf.schedulers import scheduler
    from tune_tf.searchers import OptunaSearcher

    trace = simulate(
        problem,
        OptunaSearcher(problem.space, problem.objective, "random", seed=1),
        scheduler("bohb", problem.objective, max_t=9),
        num_workers=2,
        budget_epochs=40,
    )
    # A bracket of nine, filled before any of its trials goes on.
    assert [event.iteration for event in trace.events[:9]] == [1] * 9


@pytest.mark.parametrize("num_workers", [1, 4, 16])
def test_ours_and_rays_asha_decide_alike_on_the_same_random_configs(num_workers):
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    from tune_tf.simulation import Pairing, make_pairing, make_problem

    problem = make_problem("mixed_faithful")
    objective = {"metric": problem.objective.metric, "mode": problem.objective.mode}
    space = problem.space.distributions()
    rays = Pairing(
        OptunaSearch(space, **objective, sampler=RandomSampler(5)),
        ASHAScheduler(max_t=problem.max_t, grace_period=1, reduction_factor=3, **objective),
    )
    ours, theirs = (
        simulate(
            problem,
            pairing.searcher,
            pairing.scheduler,
            num_workers=num_workers,
            budget_epochs=400,
        )
        for pairing in (make_pairing(problem, RandomSampler(5)), rays)
    )
    assert ours == theirs


def test_a_sweep_runs_a_thousand_times_faster_than_its_clock():
    from tune_tf.simulation import make_pairing, make_problem, run_seeds

    problem = make_problem("hartmann6")
    began = time.process_time()  # not the wall time, which others on the machine change
    found = run_seeds(
        problem,
        lambda seed: make_pairing(problem, "random", seed=seed),
        num_seeds=1,
        num_workers=16,
        budget_epochs=900,
    )
    virtual_s = sum(trace.virtual_s for trace in found.traces)
    assert virtual_s > 1000 * (time.process_time() - began)
    assert found.speed == virtual_s / found.real_s


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give budget_epochs or num_samples"),
        ({"num_samples": 0}, "num_samples: must be an integer of at least 1, not 0"),
        ({"num_samples": 1, "num_workers": 0}, "num_workers: must be an integer"),
        ({"budget_epochs": 1, "max_concurrent_trials": -1}, "max_concurrent_trials: must be"),
    ],
)
def test_a_sweep_without_an_end_or_with_nobody_to_run_it_is_refused(
    problem, searcher, fifo, settings, message
):
    with pytest.raises(InvalidSettingsError, match=message):
        simulate(problem, searcher, fifo, **settings)


def test_a_scheduler_that_changes_resources_is_refused(problem, searcher):
    from ray.tune.schedulers import ResourceChangingScheduler

    with pytest.raises(InvalidSettingsError, match="simulate its base scheduler"):
        simulate(problem, searcher, ResourceChangingScheduler(), num_samples=1)
