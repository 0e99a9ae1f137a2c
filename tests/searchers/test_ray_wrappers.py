"""Ray's documented examples with our searcher in the place of Ray's, and Ray's other parts as is.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

import sys
import time

import pytest

from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

inline = pytest.mark.usefixtures("inline")

LOSS = Objective("loss", "min")
SPACE = SearchSpace({"rate": Float(1, 2)})


@pytest.fixture(autouse=True)
def by_value():
    """Send what stands in this file to Ray's workers whole: they cannot import tests."""
    import killed_run
    from ray import cloudpickle

    modules = sys.modules[__name__], killed_run
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def falling(config):
    """Report ``rate`` divided by the iteration, eight times."""
    from ray import tune

    for iteration in range(1, 9):
        tune.report({"loss": config["rate"] / iteration})


def endless(config):
    """Report until it is stopped from outside."""
    from ray import tune

    while True:
        time.sleep(0.05)
        tune.report({"loss": config["rate"]})


def make(space=SPACE, objective=LOSS, **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(space, objective, "random", **{"seed": 1, **settings})


def run(trainable, searcher, folder, *, wrapped=None, **settings):
    """Run a sweep; return Optuna's trials in order, and Tune's by their ids."""
    from ray import tune

    analysis = tune.run(
        trainable,
        search_alg=wrapped or searcher,
        **{
            "num_samples": 4,
            "reuse_actors": True,
            "storage_path": str(folder),
            "raise_on_failed_trial": False,
            "verbose": 0,
            **settings,
        },
    )
    return searcher.study.trials, {trial.trial_id: trial for trial in analysis.trials}


def states(trials):
    return [trial.state.name for trial in trials]


def reasons(trials):
    return [trial.user_attrs["stop_reason"] for trial in trials]


def agree(trials, of_tune, metric="loss"):
    """Check that each trial has its Tune trial's last value, and that none is left."""
    assert len(trials) == len(of_tune)
    assert {trial.user_attrs["tune_trial_id"] for trial in trials} == of_tune.keys()
    for trial in trials:
        assert trial.state.is_finished()
        last = of_tune[trial.user_attrs["tune_trial_id"]].last_result
        assert of_tune[trial.user_attrs["tune_trial_id"]].config["rate"] == trial.params["rate"]
        if trial.value is not None:
            assert trial.value == last[metric]
            assert trial.user_attrs["epochs"] == last["training_iteration"]


@inline
def test_a_define_by_run_function_that_returns_constants(tmp_path):
    def space(trial):
        trial.suggest_float("rate", 1, 2)
        return {"constant": 1, "group": {"shape": (2, 3)}}

    trials, of_tune = run(falling, make(space), tmp_path, num_samples=2)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 2
    for trial in of_tune.values():
        assert trial.config["constant"] == 1
        assert trial.config["group"] == {"shape": (2, 3)}


@inline
def test_a_repeater_tells_the_mean_of_its_trials_and_what_is_left_over_does_not_count(tmp_path):
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
def test_a_limiter_of_batches_asks_for_none_before_all_of_a_batch_have_ended(tmp_path):
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
def test_a_limit_holds_and_trials_end_one_by_one(tmp_path):
    trials, of_tune = run(falling, make(), tmp_path, num_samples=3, max_concurrent_trials=2)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 3
    assert trials[2].datetime_start >= min(trial.datetime_complete for trial in trials[:2])


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


def after_six():
    from ray.tune.stopper import Stopper

    class AfterSix(Stopper):
        results = 0

        def __call__(self, trial_id, result):
            self.results += 1
            return False

        def stop_all(self):
            return self.results >= 6

    return AfterSix()


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
def test_a_function_that_reports_nothing_fails_in_optuna_whenever_it_comes(tmp_path):
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


@inline
def test_one_searcher_for_two_runs_takes_nothing_of_the_first_but_what_it_learned(tmp_path):
    """Not its limit of trials at a time, and not its stop criteria."""
    searcher = make()
    first, _ = run(
        falling,
        searcher,
        tmp_path / "first",
        num_samples=2,
        max_concurrent_trials=1,
        config={"other": 1},
        stop={"training_iteration": 2},
    )
    assert [max(trial.intermediate_values) for trial in first] == [2, 2]
    searcher.study.enqueue_trial({"rate": 1.1})
    searcher.study.enqueue_trial({"rate": 1.9})

    from ray.tune.schedulers import AsyncHyperBandScheduler

    asha = AsyncHyperBandScheduler("training_iteration", "loss", "min", 8, 4, 2)
    trials, of_tune = run(falling, searcher, tmp_path / "second", num_samples=2, scheduler=asha)
    assert states(trials) == ["COMPLETE"] * 3 + ["PRUNED"]
    assert trials[3].datetime_start < trials[2].datetime_complete
    agree(trials[2:], of_tune)


@inline
def test_a_run_that_is_interrupted_and_resumed_has_each_trial_once(tmp_path):
    import os
    import signal

    from ray.tune import Callback

    class Interrupt(Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            os.kill(os.getpid(), signal.SIGINT)

    def searcher():
        return make(storage=tmp_path / "study.journal", study_name="s")

    settings = {"name": "run", "max_concurrent_trials": 1, "num_samples": 3}
    before, _ = run(falling, searcher(), tmp_path, callbacks=[Interrupt()], **settings)
    assert states(before)[0] == "COMPLETE"
    assert set(states(before)[1:]) <= {"RUNNING"}
    trials, of_tune = run(falling, searcher(), tmp_path, resume=True, **settings)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 3


def kill_in_a_process(folder, wrapper):
    """Run a Tuner in a process of its own, on this one's cluster, which is killed."""
    import os
    import subprocess

    import killed_run
    import ray

    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, killed_run.__file__, str(folder), address, wrapper],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        capture_output=True,
    )
    assert done.returncode == -9, done.stderr.decode()


def leave_in_the_middle(folder, wrapper):
    """Run a Tuner in this process, which is left as if it were killed."""
    import killed_run

    def leave():
        raise SystemExit("left")

    with pytest.raises(SystemExit, match="left"):
        killed_run.run(str(folder), wrapper, leave)


on_a_cluster = [pytest.mark.slow, pytest.mark.cluster]


@pytest.mark.parametrize(
    ("wrapper", "under", "begin_and_die"),
    [
        ("limiter", "inline", leave_in_the_middle),
        ("batches", "inline", leave_in_the_middle),
        ("repeater", "inline", leave_in_the_middle),
        pytest.param("limiter", "ray_cluster", kill_in_a_process, marks=on_a_cluster),
    ],
    ids=["limiter", "batches", "repeater", "limiter on a cluster"],
)
def test_a_killed_tuner_is_restored_with_its_own_searcher(
    wrapper, under, begin_and_die, tmp_path, request, monkeypatch
):
    import killed_run
    from ray import tune

    request.getfixturevalue(under)
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    begin_and_die(tmp_path, wrapper)
    tuner = tune.Tuner.restore(str(tmp_path / "run"), trainable=killed_run.train)
    results = tuner.fit()
    searcher = tuner._local_tuner._tune_config.search_alg
    while hasattr(searcher, "searcher"):
        searcher = searcher.searcher
    trials = searcher.study.trials
    assert reasons(trials) == ["completed"] * len(trials)
    assert states(trials) == ["COMPLETE"] * len(trials)
    assert len(results) == killed_run.NUM_SAMPLES
    of_tune = {result.metrics["trial_id"]: result for result in results}
    if wrapper == "repeater":
        assert [trial.value for trial in trials] == [
            pytest.approx(trial.params["rate"] / 2 + 0.5) for trial in trials
        ]
        assert len(trials) == 3
    else:
        assert len(trials) == 6
        assert searcher.num_ended == 6
        for trial in trials:
            last = of_tune[trial.user_attrs["tune_trial_id"]]
            assert trial.value == last.metrics["loss"]
            assert trial.params["rate"] == last.config["rate"]
