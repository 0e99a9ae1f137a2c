"""Outcomes recorded by schedulers that are driven by hand."""

import math

import pytest

from tune_tf.errors import UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON

LOSS = Objective("val_loss", "min")


def make(name, **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, **{"epochs": 9, **settings})


def add(scheduler, trial_id="a", stop=None):
    from ray.tune.experiment import Trial

    trial = Trial("trainable", stub=True, trial_id=trial_id, stopping_criterion=stop)
    scheduler.on_trial_add(None, trial)
    return trial


def show(scheduler, trial, iteration, value, **extra):
    """Process a result as Tune does: the trial's own limit first, then the scheduler."""
    result = {"val_loss": value, "training_iteration": iteration, **extra}
    decision = "STOP" if trial.should_stop(result) else None
    decision = decision or scheduler.on_trial_result(None, trial, dict(result))
    if decision == "STOP":
        result["done"] = True
    trial.update_last_result(result)
    return decision


def complete(scheduler, trial):
    """Complete a trial as Tune does, and return what it says of its end."""
    scheduler.on_trial_complete(None, trial, dict(trial.last_result))
    return trial.last_result.get(STOP_REASON), trial.last_result.get(STOP_CAUSE)


both = pytest.mark.parametrize("name", ["asha", "fifo"])


@both
def test_a_trial_ends_complete_at_max_t_without_the_scheduler_being_asked(name):
    scheduler = make(name)
    trial = add(scheduler)
    assert trial.stopping_criterion == {"training_iteration": 9}
    assert show(scheduler, trial, 9, 1.0) == "STOP"
    assert complete(scheduler, trial) == ("completed", None)


@both
def test_a_limit_given_to_tune_stays(name):
    trial = add(make(name), stop={"training_iteration": 4, "acc": 0.9})
    assert trial.stopping_criterion == {"training_iteration": 4, "acc": 0.9}


@both
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_trial_whose_metric_is_not_finite_is_stopped_and_diverged(name, value):
    scheduler = make(name)
    trial = add(scheduler)
    assert show(scheduler, trial, 3, value) == "STOP"
    assert complete(scheduler, trial) == ("diverged", f"val_loss is {value} at iteration 3")


@both
@pytest.mark.parametrize(
    ("stamp", "cause"),
    [("completed", None), ("diverged", "loss exploded"), ("oom", "out of memory")],
)
def test_a_reason_that_the_trainable_wrote_stays(name, stamp, cause):
    scheduler = make(name)
    trial = add(scheduler)
    extra = {STOP_REASON: stamp} | ({STOP_CAUSE: cause} if cause else {})
    show(scheduler, trial, 2, 1.0, done=True, **extra)
    assert complete(scheduler, trial) == (stamp, cause)


@both
def test_a_trainable_that_calls_nan_complete_is_corrected(name):
    scheduler = make(name)
    trial = add(scheduler)
    show(scheduler, trial, 2, math.nan, done=True, **{STOP_REASON: "completed"})
    assert complete(scheduler, trial)[0] == "diverged"


@both
@pytest.mark.parametrize(("done", "reason"), [(True, "completed"), (False, "out_of_budget")])
@pytest.mark.parametrize("guess", ["pruned", "interrupted"])
def test_a_guess_that_somebody_else_made_is_replaced(name, done, reason, guess):
    scheduler = make(name)
    trial = add(scheduler)
    show(scheduler, trial, 2, 1.0, done=done, **{STOP_REASON: guess})
    assert complete(scheduler, trial) == (reason, None)


@both
def test_a_result_without_the_metric_is_refused_with_those_that_are_there(name):
    scheduler = make(name)
    with pytest.raises(
        UnknownMetricError, match=r"'val_loss' is not reported.*did you mean 'val_los'"
    ):
        scheduler.on_trial_result(None, add(scheduler), {"val_los": 1.0, "training_iteration": 1})


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("seed", range(3))
def test_decisions_on_finite_metrics_are_rays(mode, seed):
    import numpy as np
    from ray.tune.schedulers import AsyncHyperBandScheduler

    from tune_tf.schedulers import scheduler

    ours = scheduler(
        "asha", Objective("val_loss", mode), epochs=27, grace_period=2, reduction_factor=3
    )
    rays = AsyncHyperBandScheduler(
        "training_iteration", "val_loss", mode, max_t=27, grace_period=2, reduction_factor=3
    )
    rng = np.random.default_rng(seed)
    pairs = [(add(ours, f"t{i}"), add(rays, f"t{i}")) for i in range(40)]
    decisions = []
    for _ in range(600):
        index = int(rng.integers(len(pairs)))
        mine, his = pairs[index]
        iteration = mine.last_result.get("training_iteration", 0) + 1
        value = float(rng.normal(10 / iteration))
        result = {"val_loss": value, "training_iteration": iteration}
        # Ours ends a trial through its own limit, Ray's through the scheduler.
        decision = show(ours, mine, iteration, value)
        decisions.append((decision, rays.on_trial_result(None, his, result)))
        if decision == "STOP":
            complete(ours, mine)
            rays.on_trial_complete(None, his, result)
            pairs[index] = (add(ours, f"n{len(decisions)}"), add(rays, f"n{len(decisions)}"))
    assert [ours for ours, _ in decisions] == [rays for _, rays in decisions]
    assert {"STOP", "CONTINUE"} <= {rays for _, rays in decisions}
    assert [b.debug_str() for b in ours._brackets] == [b.debug_str() for b in rays._brackets]
