"""Ray's stoppers, schedulers and budgets with our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

import time

import pytest
from tuned_runs import after_six, agree, falling, inline, make, reasons, run, states


def endless(config):
    """Report until it is stopped from outside."""
    from ray import tune

    while True:
        time.sleep(0.05)
        tune.report({"loss": config["rate"]})


def ray_asha():
    from ray.tune.schedulers import AsyncHyperBandScheduler

    return AsyncHyperBandScheduler("training_iteration", "loss", "min", 64, 4, 2)


def after_four(trial_id, result):
    return result["training_iteration"] >= 4


def stopper(name):
    from ray.tune.stopper import MaximumIterationStopper, TrialPlateauStopper

    return {
        "function": after_four,
        "MaximumIterationStopper": MaximumIterationStopper(4),
        "TrialPlateauStopper": TrialPlateauStopper("loss", std=9, num_results=4, grace_period=4),
    }[name]


@inline
@pytest.mark.parametrize("name", ["function", "MaximumIterationStopper", "TrialPlateauStopper"])
def test_what_a_stopper_ends_is_complete_also_at_a_rung_of_rays_asha(name, tmp_path):
    """ASHA would stop the second one there; Tune asks the stopper first, and then not ASHA."""
    searcher = make(points_to_evaluate=[{"rate": 1.1}, {"rate": 1.9}])
    trials, of_tune = run(
        falling,
        searcher,
        tmp_path,
        stop=stopper(name),
        scheduler=ray_asha(),
        num_samples=2,
        max_concurrent_trials=1,
    )
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 2
    assert [max(trial.intermediate_values) for trial in trials] == [4, 4]


@inline
def test_what_rays_asha_ends_is_pruned_beside_a_stopper(tmp_path):
    searcher = make(points_to_evaluate=[{"rate": 1.1}, {"rate": 1.9}])
    trials, of_tune = run(
        falling,
        searcher,
        tmp_path,
        stop=lambda trial_id, result: result["training_iteration"] >= 6,
        scheduler=ray_asha(),
        num_samples=2,
        max_concurrent_trials=1,
    )
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE", "PRUNED"]
    assert [max(trial.intermediate_values) for trial in trials] == [6, 4]


@inline
def test_trials_that_the_end_of_a_run_stops_have_an_end(tmp_path):
    """Tune tells nobody of them; those that had not begun are failed, the others pruned."""
    trials, of_tune = run(
        endless,
        make(),
        tmp_path,
        stop=after_six(),
        num_samples=9,
        resources_per_trial={"cpu": 2},
    )
    agree(trials, of_tune)
    begun = [trial for trial in trials if trial.intermediate_values]
    assert begun
    assert set(states(begun)) == {"PRUNED"}
    waiting = [trial for trial in trials if trial not in begun]
    assert set(states(waiting)) == {"FAIL"}
    assert set(reasons(trials)) == {"out_of_budget"}


@inline
def test_trials_that_time_budget_s_stops_have_an_end(tmp_path):
    trials, of_tune = run(endless, make(), tmp_path, time_budget_s=1, num_samples=2)
    agree(trials, of_tune)
    assert set(reasons(trials)) == {"out_of_budget"}


def rays(name):
    from ray.tune import schedulers

    by = {"time_attr": "training_iteration", "metric": "loss", "mode": "min"}
    if name == "median":
        return schedulers.MedianStoppingRule(**by, grace_period=1, min_samples_required=1)
    return schedulers.HyperBandForBOHB(**by, max_t=4, reduction_factor=2)


def steps():
    from ray import tune

    class Steps(tune.Trainable):
        def step(self):
            return {"loss": self.config["rate"] / (self.iteration + 1)}

        def reset_config(self, config):
            return True

        def save_checkpoint(self, checkpoint_dir):
            return {}

        def load_checkpoint(self, checkpoint):
            pass

    return Steps


@inline
@pytest.mark.parametrize("name", ["median", "bohb"])
def test_rays_other_schedulers_prune_what_they_stop(name, tmp_path):
    rates = [1.1, 1.9, 1.5]
    trials, of_tune = run(
        steps(),
        make(points_to_evaluate=[{"rate": rate} for rate in rates]),
        tmp_path,
        num_samples=3,
        max_concurrent_trials=1 if name == "median" else None,
        scheduler=rays(name),
        stop={"training_iteration": 4},
    )
    agree(trials, of_tune)
    assert states(trials)[0] == "COMPLETE"
    assert "PRUNED" in states(trials)
    for trial in trials:
        whole = of_tune[trial.user_attrs["tune_trial_id"]].last_result["training_iteration"] == 4
        assert trial.state.name == ("COMPLETE" if whole else "PRUNED")
