"""The median stopping rule under scripted trials."""

import math

import pytest

from tune_tf.objective import Objective

LOSS = Objective("val_loss", "min")


def run(curves, *, slots=2, **settings):
    from scripted_trials import Controller

    from tune_tf.schedulers import scheduler

    made = scheduler("MedianStoppingRule", LOSS, epochs=6, **settings)
    return Controller(made, curves, slots=slots).run()


def flat(value):
    return lambda iteration: value


def test_a_trial_worse_than_the_median_is_pruned_and_the_others_complete():
    controller = run([flat(value) for value in (1, 1, 1, 5)], slots=1)
    assert controller.ends() == {
        "t0": (6, "completed"),
        "t1": (6, "completed"),
        "t2": (6, "completed"),
        "t3": (1, "pruned"),
    }


def test_nobody_is_stopped_before_the_grace_period():
    controller = run([flat(value) for value in (1, 1, 1, 5)], slots=1, grace_period=4)
    assert controller.ends()["t3"] == (4, "pruned")


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_without_a_hard_stop_every_trial_comes_to_its_end_at_last(slots):
    controller = run([flat(value) for value in (1, 1, 1, 5, 6)], slots=slots, hard_stop=False)
    assert set(controller.ends().values()) == {(6, "completed")}


def test_nan_is_diverged_and_never_enters_the_median():
    nan = lambda at: 1.0 if at < 3 else math.nan  # noqa: E731
    controller = run([nan, nan, nan, flat(1.0)], slots=1)
    assert controller.ends()["t0"] == (3, "diverged")
    assert controller.ends()["t3"] == (6, "completed")
    values = [each["val_loss"] for told in controller.scheduler._results.values() for each in told]
    assert all(math.isfinite(value) for value in values)
