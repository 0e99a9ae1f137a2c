"""Hyperband and BOHB's variant under scripted trials."""

import math

import pytest

from tune_tf.objective import Objective

LOSS = Objective("val_loss", "min")


def run(name, curves, *, slots=2, max_t=9, reduction_factor=3):
    from scripted_trials import Controller

    from tune_tf.schedulers import scheduler

    made = scheduler(name, LOSS, epochs=max_t, reduction_factor=reduction_factor)
    return Controller(made, curves, slots=slots).run()


def flat(value):
    return lambda iteration: value


def dies(kind, iteration):
    """Return a curve that is the best until it diverges or fails."""
    return {
        "nan": lambda at: math.nan if at >= iteration else 0.0,
        "error": lambda at: 1 / 0 if at >= iteration else 0.0,
    }[kind]


both = pytest.mark.parametrize("name", ["HyperBandScheduler", "HyperBandForBOHB"])


@both
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 3, 14])
def test_every_trial_comes_to_its_end_whatever_the_bracket_and_the_slots(name, count, slots):
    controller = run(name, [flat(value) for value in range(count)], slots=slots)
    assert {trial.status for trial in controller.trials} == {"TERMINATED"}
    assert all(reason in ("completed", "pruned") for _, reason in controller.ends().values())


def test_trials_of_a_bracket_rounded_below_max_t_are_completed():
    controller = run("HyperBandForBOHB", [flat(value) for value in range(9)], slots=9, max_t=10)
    ends = list(controller.ends().values())
    assert ends[0] == (9, "completed")
    assert set(ends[1:3]) == {(3, "pruned")}
    assert set(ends[3:]) == {(1, "pruned")}


@both
@pytest.mark.parametrize("kind", ["nan", "error"])
@pytest.mark.parametrize("iteration", [1, 2, 3, 5])
@pytest.mark.parametrize("slots", [2, 8])
def test_a_dead_trial_does_not_block_its_bracket(name, kind, iteration, slots):
    curves = [flat(value) for value in range(1, 8)]
    controller = run(name, [*curves[:3], dies(kind, iteration), *curves[3:]], slots=slots)
    ends = controller.ends()
    at, reason = ends.pop("t3")
    assert reason == {"nan": "diverged", "error": None}[kind]
    assert (at or 0) <= iteration
    assert {reason for _, reason in ends.values()} <= {"completed", "pruned"}


def test_nan_is_never_compared():
    controller = run(
        "HyperBandScheduler", [dies("nan", 3), *[flat(value) for value in range(7)]], slots=8
    )
    values = [
        result
        for band in controller.scheduler._hyperbands
        for bracket in band
        for result in bracket._live_trials.values()
    ]
    assert values == []
    assert controller.ends()["t0"] == (3, "diverged")


@pytest.mark.parametrize("max_t", [1, 4, 9, 10, 27, 81, 100])
@pytest.mark.parametrize("factor", [2, 2.5, 3, 4])
@both
def test_the_rungs_are_the_milestones_of_rays_brackets(name, max_t, factor):
    from tune_tf.schedulers import scheduler

    made = scheduler(name, LOSS, epochs=max_t, reduction_factor=factor)
    found = set()
    for halvings in range(made._s_max_1):
        if not made._get_r0(halvings):
            continue
        bracket = made._create_bracket(halvings)
        found.add(bracket._cumul_r)
        while bracket._halves:
            bracket.successive_halving("val_loss", 1.0)
            found.add(bracket._cumul_r)
    assert made.rungs == tuple(sorted(found))


@pytest.mark.parametrize("slots", [4, 8, 20])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_decisions_on_finite_metrics_are_rays(mode, slots):
    from ray.tune.schedulers import HyperBandScheduler
    from scripted_trials import Controller

    from tune_tf.schedulers import scheduler

    curves = [lambda at, i=i: (i * 7 % 11) / at for i in range(20)]
    ours = scheduler("HyperBandScheduler", Objective("val_loss", mode), epochs=9)
    rays = HyperBandScheduler("training_iteration", "val_loss", mode, max_t=9)
    ends = [
        [at for at, _ in Controller(each, curves, slots=slots).run().ends().values()]
        for each in (ours, rays)
    ]
    assert ends[0] == ends[1]
    assert len(set(ends[0])) > 1
