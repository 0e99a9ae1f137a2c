"""Ray's Repeater and limiters around our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

import time

import pytest
from tuned_runs import after_six, agree, inline, make, reasons, run, states


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
def test_a_batch_limiter_proposes_only_after_the_whole_batch_ended(tmp_path):
    from ray.tune.search import ConcurrencyLimiter

    def uneven(config):
        from ray import tune

        time.sleep(0.6 if config["rate"] > 1.5 else 0)
        tune.report({"loss": config["rate"]})

    searcher = make(points_to_evaluate=[{"rate": 1.2}, {"rate": 1.8}])
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2, batch=True)
    trials, of_tune = run(uneven, searcher, tmp_path, wrapped=limiter)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 4
    ended = max(trial.datetime_complete for trial in trials[:2])
    assert all(trial.datetime_start >= ended for trial in trials[2:])


@inline
def test_a_batch_that_the_end_of_a_run_stops_has_an_end(tmp_path):
    """The limiter holds what it was told of the first for ever."""
    from ray.tune.search import ConcurrencyLimiter

    def some_end(config):
        from ray import tune

        tune.report({"loss": config["rate"]})
        while config["rate"] > 1.5:
            time.sleep(0.05)
            tune.report({"loss": config["rate"]})

    searcher = make(points_to_evaluate=[{"rate": 1.2}, {"rate": 1.8}])
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2, batch=True)

    trials, of_tune = run(some_end, searcher, tmp_path, wrapped=limiter, stop=after_six())
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE", "PRUNED"]
    assert reasons(trials) == ["completed", "out_of_budget"]
