"""Runs of Ray Tune with our searcher, and the comparison of its trials with Tune's."""

import pytest

from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

inline = pytest.mark.usefixtures("inline")
LOSS = Objective("loss", "min")
SPACE = SearchSpace({"rate": Float(1, 2)})


def falling(config):
    """Report ``rate`` divided by the iteration, eight times."""
    from ray import tune

    for iteration in range(1, 9):
        tune.report({"loss": config["rate"] / iteration})


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
