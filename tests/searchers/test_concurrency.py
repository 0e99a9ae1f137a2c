"""Limits of concurrent trials, under Ray's wrappers and with paused trials."""

import math

import pytest

from tune_tf.errors import UnknownMetricError
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LOSS = Objective("loss", "min")
SPACE = SearchSpace({"rate": Float(0, 1)})


def make(**settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(SPACE, LOSS, "random", seed=1, **settings)


def test_the_limit_of_tunes_limiter_counts_trials_that_have_not_ended():
    from ray.tune.search import ConcurrencyLimiter

    searcher = make()
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
    limiter.set_search_properties("loss", "min", {})
    assert [limiter.suggest(name) is None for name in "abc"] == [False, False, True]
    limiter.on_trial_complete("b", error=True)
    assert [trial.state.name for trial in searcher.study.trials] == ["RUNNING", "FAIL"]
    assert limiter.suggest("c")


def repeated(searcher, results):
    """Run one config in several trials, as Tune does under a Repeater; return Optuna's trial."""
    from ray.tune.search import Repeater

    repeater = Repeater(searcher, repeat=len(results))
    for number in range(len(results)):
        assert repeater.suggest(str(number))
    for number, result in enumerate(results):
        error = result is None
        last = None if error else {"training_iteration": 2, "done": True, **result}
        repeater.on_trial_complete(str(number), result=last, error=error)
    [trial] = searcher.study.trials
    return trial


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize(
    ("results", "state", "value"),
    [
        ([{"loss": 1.0}, {"loss": 2.0}], "COMPLETE", 1.5),
        ([{"loss": 1.0}, None], "COMPLETE", 1.0),
        ([None, {"loss": 1.0}], "COMPLETE", 1.0),
        ([{"loss": math.nan}, {"loss": 3.0}, {"loss": 5.0}], "COMPLETE", 4.0),
        ([{"loss": math.nan}, {"loss": math.nan}], "FAIL", None),
        ([{"loss": math.inf}, {"loss": 1.0}], "FAIL", None),
        ([None, {"loss": math.nan}], "FAIL", None),
        ([{}, None], "FAIL", None),
        ([None, None], "FAIL", None),
    ],
)
def test_the_mean_of_the_repeats_that_gave_one_is_the_value_in_any_order(results, state, value):
    trial = repeated(make(), results)
    assert (trial.state.name, trial.value) == (state, value)
    assert trial.user_attrs["tune_trial_id"] == "0"
    if state == "FAIL":
        assert trial.user_attrs["stop_cause"]


def test_a_mean_of_one_of_several_objectives_is_refused():
    from tune_tf.searchers import OptunaSearcher

    searcher = OptunaSearcher(SPACE, [LOSS, Objective("accuracy", "max")], "random")
    with pytest.raises(UnknownMetricError, match=r"'accuracy' is not reported; .* reports loss"):
        repeated(searcher, [{"loss": 1.0}, {"loss": 2.0}])


def steps():
    from ray import tune

    class Steps(tune.Trainable):
        def step(self):
            return {"loss": self.config["rate"] / self.iteration if self.iteration else 1.0}

        def save_checkpoint(self, checkpoint_dir):
            return {"iteration": self.iteration}

        def load_checkpoint(self, checkpoint):
            pass

    return Steps


@pytest.mark.usefixtures("inline")
def test_a_scheduler_that_pauses_is_not_starved_and_its_stops_are_pruned(tmp_path):
    """HyperBand waits for full brackets: with paused trials counted, two never fill one."""
    from ray import tune
    from ray.tune.schedulers import HyperBandScheduler

    searcher = make()
    analysis = tune.run(
        steps(),
        search_alg=searcher,
        scheduler=HyperBandScheduler(metric="loss", mode="min", max_t=4, reduction_factor=2),
        num_samples=7,
        max_concurrent_trials=2,
        storage_path=str(tmp_path),
        verbose=0,
    )
    trials = searcher.study.trials
    assert len(analysis.trials) == len(trials) == 7
    assert all(trial.intermediate_values for trial in trials)
    assert all(trial.user_attrs["epochs"] >= 1 for trial in trials)
    assert all(trial.user_attrs["seconds"] > 0 for trial in trials)
    for trial in trials:  # how many are stopped depends on how many are in a bracket at once
        full = trial.user_attrs["epochs"] == 4
        assert trial.state.name == ("COMPLETE" if full else "PRUNED")
    by_id = {trial.trial_id: trial for trial in analysis.trials}
    for trial in trials:
        last = by_id[trial.user_attrs["tune_trial_id"]].last_result["training_iteration"]
        assert trial.user_attrs["epochs"] == last == max(trial.intermediate_values)
