"""Failures, wrappers and nested metrics under Ray Tune with our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

import pytest
from tuned_runs import agree, inline, make, reasons, run, states

from tune_tf.objective import Objective


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


@inline
def test_a_repeater_reports_means_and_fails_incomplete_repeats(tmp_path):
    from ray.tune.search import Repeater

    def repeated(config):
        from ray import tune

        tune.report({"loss": 9.0})
        tune.report({"loss": config["rate"] + config["__trial_index__"]})

    searcher = make()
    trials, of_tune = run(
        repeated, searcher, tmp_path, wrapped=Repeater(searcher, repeat=3), num_samples=7
    )
    assert len(of_tune) == 7
    assert states(trials) == ["COMPLETE", "COMPLETE", "FAIL"]
    assert [trial.value for trial in trials[:2]] == [
        pytest.approx(trial.params["rate"] + 1) for trial in trials[:2]
    ]
    assert reasons(trials) == ["completed", "completed", "out_of_budget"]
    assert trials[2].user_attrs["stop_cause"] == "the run ended before all of its repeats"
    assert [trial.user_attrs["epochs"] for trial in trials[:2]] == [2, 2]


@inline
def test_nested_metrics_and_tune_runs_own_metric_and_mode(tmp_path):
    def grouped(config):
        from ray import tune

        for iteration in (1, 2):
            tune.report({"validation": {"loss": config["rate"] / iteration}})

    searcher = make(objective=Objective("validation/loss", "min"))
    trials, _ = run(
        grouped,
        searcher,
        tmp_path,
        num_samples=2,
        metric="validation/loss",
        mode="min",
        config={"other": 1},
    )
    assert states(trials) == ["COMPLETE"] * 2
    for trial in trials:
        assert trial.intermediate_values == {1: trial.params["rate"], 2: trial.params["rate"] / 2}
