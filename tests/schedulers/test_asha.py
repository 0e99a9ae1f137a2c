import pytest

from tune_tf.objective import Objective


@pytest.mark.parametrize("max_t", [1, 9, 27, 100, 243])
@pytest.mark.parametrize("grace_period", [1, 2])
@pytest.mark.parametrize("factor", [1.5, 2, 3, 4])
def test_the_rungs_are_those_at_which_ray_compares(max_t, grace_period, factor):
    from scripted_trials import ScriptedTrial

    from tune_tf.schedulers import scheduler

    made = scheduler(
        "asha",
        Objective("val_loss", "min"),
        epochs=max(max_t, grace_period),
        grace_period=grace_period,
        reduction_factor=factor,
    )
    (bracket,) = made._brackets
    trial = ScriptedTrial("a")
    compared = []
    for iteration in range(1, max(max_t, grace_period) + 1):
        known = sum(len(recorded) for _, recorded in bracket._rungs)
        bracket.on_result(trial, iteration, 1.0)
        if sum(len(recorded) for _, recorded in bracket._rungs) > known:
            compared.append(iteration)
    assert made.rungs == tuple(compared)


def test_brackets_are_those_of_ray():
    from ray.tune.schedulers import ASHAScheduler

    from tune_tf.schedulers import scheduler

    made = scheduler("asha", Objective("val_loss", "min"), epochs=27, brackets=3)
    theirs = ASHAScheduler(max_t=27, grace_period=1, reduction_factor=3, brackets=3)
    rungs = [[at for at, _ in bracket._rungs] for bracket in made._brackets]
    assert rungs == [[at for at, _ in bracket._rungs] for bracket in theirs._brackets]
    assert set().union(*rungs) == set(made.rungs)
