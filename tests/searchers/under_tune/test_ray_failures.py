"""Failing trials under Ray Tune with our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

from tuned_runs import agree, inline, make, reasons, run, states


def failing():
    """Return a class that cannot be set up, or fails at its second step, at low rates."""
    from ray import tune

    class Failing(tune.Trainable):
        def setup(self, config):
            if config["rate"] < 1.2:
                raise RuntimeError("cannot be set up")

        def reset_config(self, config):
            self.setup(config)
            return True

        def step(self):
            if 1.2 <= self.config["rate"] < 1.4 and self.iteration == 1:
                raise RuntimeError("cannot be trained")
            return {"loss": self.config["rate"]}

    return Failing


@inline
def test_trials_that_fail_for_good_are_failed_and_those_before_are_not(tmp_path):
    rates = [1.9, 1.1, 1.3]
    trials, of_tune = run(
        failing(),
        make(points_to_evaluate=[{"rate": rate} for rate in rates]),
        tmp_path,
        num_samples=3,
        max_concurrent_trials=1,
        max_failures=1,
        stop={"training_iteration": 2},
    )
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE", "FAIL", "FAIL"]
    causes = [trial.user_attrs.get("stop_cause", "") for trial in trials]
    assert "cannot be set up" in causes[1]
    assert "cannot be trained" in causes[2]
    assert trials[2].intermediate_values == {1: 1.3}


@inline
def test_fail_fast_leaves_no_trial_without_an_end(tmp_path):
    trials, of_tune = run(
        failing(),
        make(points_to_evaluate=[{"rate": 1.9}, {"rate": 1.3}]),
        tmp_path,
        num_samples=2,
        fail_fast=True,
    )
    agree(trials, of_tune)
    assert states(trials)[1] == "FAIL"
    assert reasons(trials) == ["out_of_budget", "error"]


@inline
def test_trials_of_a_function_that_reports_nothing_fail_in_optuna(tmp_path):
    def silent(config):
        from ray import tune

        if config["rate"] > 1.5:
            tune.report({"loss": config["rate"]})

    points = [{"rate": 1.2}, {"rate": 1.8}, {"rate": 1.3}]
    trials, of_tune = run(
        silent,
        make(points_to_evaluate=points),
        tmp_path,
        num_samples=3,
        max_concurrent_trials=1,
    )
    agree(trials, of_tune)
    assert states(trials) == ["FAIL", "COMPLETE", "FAIL"]
    assert trials[2].user_attrs["stop_cause"] == "loss is not reported"
    assert {trial.status for trial in of_tune.values()} == {"TERMINATED"}
